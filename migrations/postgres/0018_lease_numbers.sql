-- What proves that a lease is closed, and which replicas may have spent from it. No clock takes part.

-- Numbers for leases and for replicas that are counted out: which came first.
CREATE SEQUENCE lease_numbers;

-- 0, a lease of before: every replica that was ever there may know of it.
ALTER TABLE purses ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
ALTER TABLE purses ALTER COLUMN number SET DEFAULT nextval('lease_numbers');
-- Whether it is known of a withheld lease that nobody can spend from it any more.
ALTER TABLE purses ADD COLUMN closed BOOLEAN NOT NULL DEFAULT FALSE;

-- What seen_at was when others noticed the silence. While both are the same, the replica is not registered: it must
-- register again before it learns of a lease.
ALTER TABLE replicas ADD COLUMN silent_seen_at BIGINT;
-- Drawn after that was committed: leases of a higher number are none that it knows.
ALTER TABLE replicas ADD COLUMN gone BIGINT;
