-- What happened: every verification that found a key, every check of the standalone limiter, and what they come to
-- per minute, hour, day and month. Written in batches, a moment after the fact; nothing that is verified reads it.
--
-- Times are unix milliseconds; those of sums are the beginning of their minute, hour, day or month (UTC).

-- What one replica wrote at once. Its events are summed up once, by whichever replica comes first: until then they are
-- added where sums are read.
CREATE TABLE batches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- As the replica calls it: a batch that is sent once more is known by it.
    name TEXT NOT NULL UNIQUE,
    region TEXT NOT NULL,
    written_at INTEGER NOT NULL,
    -- The time of its first and of its last event.
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    summed INTEGER NOT NULL
) STRICT;
CREATE INDEX batches_to_sum ON batches (id) WHERE summed = 0;

-- What many events have in common, named by the first 16 bytes of the SHA-256 of it. Tags are a JSON list, sorted and
-- without doubles.
CREATE TABLE verification_series (
    id BLOB PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    api_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    identity_id TEXT NOT NULL,
    external_id TEXT NOT NULL,
    outcome TEXT NOT NULL,
    tags TEXT NOT NULL,
    -- The last day on which it was written to.
    seen_at INTEGER NOT NULL
) STRICT;
CREATE INDEX verification_series_api ON verification_series (workspace_id, api_id, key_id);
CREATE INDEX verification_series_key ON verification_series (key_id);
CREATE INDEX verification_series_seen ON verification_series (seen_at);

-- One row for each verification that found a key.
CREATE TABLE verifications (
    time INTEGER NOT NULL,
    series BLOB NOT NULL,
    batch INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    spent_credits INTEGER NOT NULL,
    latency_us INTEGER NOT NULL,
    region TEXT NOT NULL,
    -- Why it was refused, for people; empty for what was not.
    reason TEXT NOT NULL
) STRICT;
CREATE INDEX verifications_batch ON verifications (batch);
CREATE INDEX verifications_series ON verifications (series, time);
CREATE INDEX verifications_request ON verifications (request_id);

-- Sums. A latency is counted in the one bucket that it falls into; above 100 ms it is in none.
CREATE TABLE verifications_per_minute (
    series BLOB NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    spent_credits INTEGER NOT NULL,
    latency_us INTEGER NOT NULL,
    latency_le_100us INTEGER NOT NULL,
    latency_le_500us INTEGER NOT NULL,
    latency_le_1ms INTEGER NOT NULL,
    latency_le_5ms INTEGER NOT NULL,
    latency_le_25ms INTEGER NOT NULL,
    latency_le_100ms INTEGER NOT NULL,
    PRIMARY KEY (series, time)
) STRICT;
CREATE INDEX verifications_per_minute_time ON verifications_per_minute (time);

CREATE TABLE verifications_per_hour (
    series BLOB NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    spent_credits INTEGER NOT NULL,
    latency_us INTEGER NOT NULL,
    latency_le_100us INTEGER NOT NULL,
    latency_le_500us INTEGER NOT NULL,
    latency_le_1ms INTEGER NOT NULL,
    latency_le_5ms INTEGER NOT NULL,
    latency_le_25ms INTEGER NOT NULL,
    latency_le_100ms INTEGER NOT NULL,
    PRIMARY KEY (series, time)
) STRICT;
CREATE INDEX verifications_per_hour_time ON verifications_per_hour (time);

CREATE TABLE verifications_per_day (
    series BLOB NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    spent_credits INTEGER NOT NULL,
    latency_us INTEGER NOT NULL,
    latency_le_100us INTEGER NOT NULL,
    latency_le_500us INTEGER NOT NULL,
    latency_le_1ms INTEGER NOT NULL,
    latency_le_5ms INTEGER NOT NULL,
    latency_le_25ms INTEGER NOT NULL,
    latency_le_100ms INTEGER NOT NULL,
    PRIMARY KEY (series, time)
) STRICT;
CREATE INDEX verifications_per_day_time ON verifications_per_day (time);

CREATE TABLE verifications_per_month (
    series BLOB NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    spent_credits INTEGER NOT NULL,
    latency_us INTEGER NOT NULL,
    latency_le_100us INTEGER NOT NULL,
    latency_le_500us INTEGER NOT NULL,
    latency_le_1ms INTEGER NOT NULL,
    latency_le_5ms INTEGER NOT NULL,
    latency_le_25ms INTEGER NOT NULL,
    latency_le_100ms INTEGER NOT NULL,
    PRIMARY KEY (series, time)
) STRICT;
CREATE INDEX verifications_per_month_time ON verifications_per_month (time);

-- The same without keys and tags, written with the events: few rows, for charts. `unit` is minute, hour, day or month.
CREATE TABLE verification_totals (
    workspace_id TEXT NOT NULL,
    api_id TEXT NOT NULL,
    unit TEXT NOT NULL,
    time INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    count INTEGER NOT NULL,
    spent_credits INTEGER NOT NULL,
    latency_us INTEGER NOT NULL,
    latency_le_100us INTEGER NOT NULL,
    latency_le_500us INTEGER NOT NULL,
    latency_le_1ms INTEGER NOT NULL,
    latency_le_5ms INTEGER NOT NULL,
    latency_le_25ms INTEGER NOT NULL,
    latency_le_100ms INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, api_id, unit, time, outcome)
) STRICT;
CREATE INDEX verification_totals_time ON verification_totals (unit, time);

CREATE TABLE ratelimit_series (
    id BLOB PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    namespace_id TEXT NOT NULL,
    identifier TEXT NOT NULL,
    passed INTEGER NOT NULL,
    seen_at INTEGER NOT NULL
) STRICT;
CREATE INDEX ratelimit_series_namespace ON ratelimit_series (workspace_id, namespace_id, identifier);
CREATE INDEX ratelimit_series_seen ON ratelimit_series (seen_at);

-- One row for each check of the standalone limiter.
CREATE TABLE ratelimits (
    time INTEGER NOT NULL,
    series BLOB NOT NULL,
    batch INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    latency_us INTEGER NOT NULL,
    -- Empty: no override applied.
    override_id TEXT NOT NULL,
    max INTEGER NOT NULL,
    remaining INTEGER NOT NULL,
    reset_at INTEGER NOT NULL,
    tokens INTEGER NOT NULL
) STRICT;
CREATE INDEX ratelimits_batch ON ratelimits (batch);
CREATE INDEX ratelimits_series ON ratelimits (series, time);
CREATE INDEX ratelimits_request ON ratelimits (request_id);

CREATE TABLE ratelimits_per_minute (
    series BLOB NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    latency_us INTEGER NOT NULL,
    latency_le_100us INTEGER NOT NULL,
    latency_le_500us INTEGER NOT NULL,
    latency_le_1ms INTEGER NOT NULL,
    latency_le_5ms INTEGER NOT NULL,
    latency_le_25ms INTEGER NOT NULL,
    latency_le_100ms INTEGER NOT NULL,
    PRIMARY KEY (series, time)
) STRICT;
CREATE INDEX ratelimits_per_minute_time ON ratelimits_per_minute (time);

CREATE TABLE ratelimits_per_hour (
    series BLOB NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    latency_us INTEGER NOT NULL,
    latency_le_100us INTEGER NOT NULL,
    latency_le_500us INTEGER NOT NULL,
    latency_le_1ms INTEGER NOT NULL,
    latency_le_5ms INTEGER NOT NULL,
    latency_le_25ms INTEGER NOT NULL,
    latency_le_100ms INTEGER NOT NULL,
    PRIMARY KEY (series, time)
) STRICT;
CREATE INDEX ratelimits_per_hour_time ON ratelimits_per_hour (time);

CREATE TABLE ratelimits_per_day (
    series BLOB NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    latency_us INTEGER NOT NULL,
    latency_le_100us INTEGER NOT NULL,
    latency_le_500us INTEGER NOT NULL,
    latency_le_1ms INTEGER NOT NULL,
    latency_le_5ms INTEGER NOT NULL,
    latency_le_25ms INTEGER NOT NULL,
    latency_le_100ms INTEGER NOT NULL,
    PRIMARY KEY (series, time)
) STRICT;
CREATE INDEX ratelimits_per_day_time ON ratelimits_per_day (time);

CREATE TABLE ratelimits_per_month (
    series BLOB NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    latency_us INTEGER NOT NULL,
    latency_le_100us INTEGER NOT NULL,
    latency_le_500us INTEGER NOT NULL,
    latency_le_1ms INTEGER NOT NULL,
    latency_le_5ms INTEGER NOT NULL,
    latency_le_25ms INTEGER NOT NULL,
    latency_le_100ms INTEGER NOT NULL,
    PRIMARY KEY (series, time)
) STRICT;
CREATE INDEX ratelimits_per_month_time ON ratelimits_per_month (time);

CREATE TABLE ratelimit_totals (
    workspace_id TEXT NOT NULL,
    namespace_id TEXT NOT NULL,
    unit TEXT NOT NULL,
    time INTEGER NOT NULL,
    passed INTEGER NOT NULL,
    count INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    latency_us INTEGER NOT NULL,
    latency_le_100us INTEGER NOT NULL,
    latency_le_500us INTEGER NOT NULL,
    latency_le_1ms INTEGER NOT NULL,
    latency_le_5ms INTEGER NOT NULL,
    latency_le_25ms INTEGER NOT NULL,
    latency_le_100ms INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, namespace_id, unit, time, passed)
) STRICT;
CREATE INDEX ratelimit_totals_time ON ratelimit_totals (unit, time);
