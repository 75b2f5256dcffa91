-- What is on its way to ClickHouse, where there is one, and which of its rows count.
--
-- What is brought there at once is a delivery, and every row there names its own. One that may or may not have arrived
-- is made again as another one. Whoever reads there leaves out the deliveries that are void: so each event counts once,
-- whichever connection breaks, and is seen with the rest of its delivery or not at all.

-- A batch whose events have not been seen to arrive; they are lines of JSON.
CREATE TABLE parcels (
    batch INTEGER PRIMARY KEY,
    put_at INTEGER NOT NULL,
    -- The time of its first and of its last event.
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    events INTEGER NOT NULL,
    verifications TEXT NOT NULL,
    ratelimits TEXT NOT NULL,
    -- The last delivery that took it, or 0, and until when no other one does.
    delivery INTEGER NOT NULL,
    held_until INTEGER NOT NULL
) STRICT;
CREATE INDEX parcels_delivery ON parcels (delivery);

-- Deliveries that do not count: under way, broken off, or replaced.
CREATE TABLE void_deliveries (
    id INTEGER PRIMARY KEY,
    begun_at INTEGER NOT NULL
) STRICT;

-- The days (UTC, by when they begin) that are summed up by hour in ClickHouse, or are being summed up, and the delivery
-- that the sums came with (0: none yet). One that has changed since is summed up once more.
CREATE TABLE summed_days (
    day INTEGER PRIMARY KEY,
    delivery INTEGER NOT NULL,
    -- How often events of that day have arrived since it was first taken in hand, and how many of these times are in
    -- the sums.
    changes INTEGER NOT NULL,
    changes_summed INTEGER NOT NULL
) STRICT;

-- The number of the last delivery; up to when days are summed up (absent: nothing was delivered yet); and until when
-- one replica has a day in hand.
CREATE TABLE delivered (
    last INTEGER NOT NULL,
    summed_until INTEGER,
    held_until INTEGER NOT NULL
) STRICT;
INSERT INTO delivered (last, summed_until, held_until) VALUES (0, NULL, 0);
