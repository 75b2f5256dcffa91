-- What happened: every verification that found a key, every check of the standalone limiter, and what they come to
-- per minute, hour, day and month. Written in batches, a moment after the fact; nothing that is verified reads it.
--
-- Times are unix milliseconds; those of sums are the beginning of their minute, hour, day or month (UTC).

-- What one replica wrote at once. Its events are summed up once, by whichever replica comes first: until then they are
-- added where sums are read.
CREATE TABLE batches (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- As the replica calls it: a batch that is sent once more is known by it.
    name TEXT COLLATE "C" NOT NULL UNIQUE,
    region TEXT NOT NULL,
    written_at BIGINT NOT NULL,
    -- The time of its first and of its last event.
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    summed BOOLEAN NOT NULL
);
CREATE INDEX batches_to_sum ON batches (id) WHERE NOT summed;

-- What many events have in common, named by the first 16 bytes of the SHA-256 of it. Tags are a JSON list, sorted and
-- without doubles.
CREATE TABLE verification_series (
    id BYTEA PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL,
    api_id TEXT COLLATE "C" NOT NULL,
    key_id TEXT COLLATE "C" NOT NULL,
    identity_id TEXT COLLATE "C" NOT NULL,
    external_id TEXT COLLATE "C" NOT NULL,
    outcome TEXT COLLATE "C" NOT NULL,
    tags TEXT COLLATE "C" NOT NULL,
    -- The last day on which it was written to.
    seen_at BIGINT NOT NULL
);
CREATE INDEX verification_series_api ON verification_series (workspace_id, api_id, key_id);
CREATE INDEX verification_series_key ON verification_series (key_id);
CREATE INDEX verification_series_seen ON verification_series (seen_at);

-- One row for each verification that found a key.
CREATE TABLE verifications (
    time BIGINT NOT NULL,
    series BYTEA NOT NULL,
    batch BIGINT NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    spent_credits BIGINT NOT NULL,
    latency_us BIGINT NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    -- Why it was refused, for people; empty for what was not.
    reason TEXT NOT NULL
) PARTITION BY RANGE (time);
CREATE TABLE verifications_rest PARTITION OF verifications DEFAULT;
CREATE INDEX verifications_batch ON verifications USING brin (batch);
CREATE INDEX verifications_series ON verifications (series, time);
CREATE INDEX verifications_request ON verifications (request_id);

-- Sums. A latency is counted in the one bucket that it falls into; above 100 ms it is in none.
CREATE TABLE verifications_per_minute (
    series BYTEA NOT NULL,
    time BIGINT NOT NULL,
    count BIGINT NOT NULL,
    spent_credits BIGINT NOT NULL,
    latency_us BIGINT NOT NULL,
    latency_le_100us BIGINT NOT NULL,
    latency_le_500us BIGINT NOT NULL,
    latency_le_1ms BIGINT NOT NULL,
    latency_le_5ms BIGINT NOT NULL,
    latency_le_25ms BIGINT NOT NULL,
    latency_le_100ms BIGINT NOT NULL,
    PRIMARY KEY (series, time)
) PARTITION BY RANGE (time);
CREATE TABLE verifications_per_minute_rest PARTITION OF verifications_per_minute DEFAULT;
CREATE INDEX verifications_per_minute_time ON verifications_per_minute (time);

CREATE TABLE verifications_per_hour (
    series BYTEA NOT NULL,
    time BIGINT NOT NULL,
    count BIGINT NOT NULL,
    spent_credits BIGINT NOT NULL,
    latency_us BIGINT NOT NULL,
    latency_le_100us BIGINT NOT NULL,
    latency_le_500us BIGINT NOT NULL,
    latency_le_1ms BIGINT NOT NULL,
    latency_le_5ms BIGINT NOT NULL,
    latency_le_25ms BIGINT NOT NULL,
    latency_le_100ms BIGINT NOT NULL,
    PRIMARY KEY (series, time)
) PARTITION BY RANGE (time);
CREATE TABLE verifications_per_hour_rest PARTITION OF verifications_per_hour DEFAULT;
CREATE INDEX verifications_per_hour_time ON verifications_per_hour (time);

CREATE TABLE verifications_per_day (
    series BYTEA NOT NULL,
    time BIGINT NOT NULL,
    count BIGINT NOT NULL,
    spent_credits BIGINT NOT NULL,
    latency_us BIGINT NOT NULL,
    latency_le_100us BIGINT NOT NULL,
    latency_le_500us BIGINT NOT NULL,
    latency_le_1ms BIGINT NOT NULL,
    latency_le_5ms BIGINT NOT NULL,
    latency_le_25ms BIGINT NOT NULL,
    latency_le_100ms BIGINT NOT NULL,
    PRIMARY KEY (series, time)
);
CREATE INDEX verifications_per_day_time ON verifications_per_day (time);

CREATE TABLE verifications_per_month (
    series BYTEA NOT NULL,
    time BIGINT NOT NULL,
    count BIGINT NOT NULL,
    spent_credits BIGINT NOT NULL,
    latency_us BIGINT NOT NULL,
    latency_le_100us BIGINT NOT NULL,
    latency_le_500us BIGINT NOT NULL,
    latency_le_1ms BIGINT NOT NULL,
    latency_le_5ms BIGINT NOT NULL,
    latency_le_25ms BIGINT NOT NULL,
    latency_le_100ms BIGINT NOT NULL,
    PRIMARY KEY (series, time)
);
CREATE INDEX verifications_per_month_time ON verifications_per_month (time);

-- The same without keys and tags, written with the events: few rows, for charts. `unit` is minute, hour, day or month.
CREATE TABLE verification_totals (
    workspace_id TEXT COLLATE "C" NOT NULL,
    api_id TEXT COLLATE "C" NOT NULL,
    unit TEXT COLLATE "C" NOT NULL,
    time BIGINT NOT NULL,
    outcome TEXT COLLATE "C" NOT NULL,
    count BIGINT NOT NULL,
    spent_credits BIGINT NOT NULL,
    latency_us BIGINT NOT NULL,
    latency_le_100us BIGINT NOT NULL,
    latency_le_500us BIGINT NOT NULL,
    latency_le_1ms BIGINT NOT NULL,
    latency_le_5ms BIGINT NOT NULL,
    latency_le_25ms BIGINT NOT NULL,
    latency_le_100ms BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, api_id, unit, time, outcome)
);
CREATE INDEX verification_totals_time ON verification_totals (unit, time);

CREATE TABLE ratelimit_series (
    id BYTEA PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL,
    namespace_id TEXT COLLATE "C" NOT NULL,
    identifier TEXT COLLATE "C" NOT NULL,
    passed BOOLEAN NOT NULL,
    seen_at BIGINT NOT NULL
);
CREATE INDEX ratelimit_series_namespace ON ratelimit_series (workspace_id, namespace_id, identifier);
CREATE INDEX ratelimit_series_seen ON ratelimit_series (seen_at);

-- One row for each check of the standalone limiter.
CREATE TABLE ratelimits (
    time BIGINT NOT NULL,
    series BYTEA NOT NULL,
    batch BIGINT NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    latency_us BIGINT NOT NULL,
    -- Empty: no override applied.
    override_id TEXT COLLATE "C" NOT NULL,
    max BIGINT NOT NULL,
    remaining BIGINT NOT NULL,
    reset_at BIGINT NOT NULL,
    tokens BIGINT NOT NULL
) PARTITION BY RANGE (time);
CREATE TABLE ratelimits_rest PARTITION OF ratelimits DEFAULT;
CREATE INDEX ratelimits_batch ON ratelimits USING brin (batch);
CREATE INDEX ratelimits_series ON ratelimits (series, time);
CREATE INDEX ratelimits_request ON ratelimits (request_id);

CREATE TABLE ratelimits_per_minute (
    series BYTEA NOT NULL,
    time BIGINT NOT NULL,
    count BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    latency_us BIGINT NOT NULL,
    latency_le_100us BIGINT NOT NULL,
    latency_le_500us BIGINT NOT NULL,
    latency_le_1ms BIGINT NOT NULL,
    latency_le_5ms BIGINT NOT NULL,
    latency_le_25ms BIGINT NOT NULL,
    latency_le_100ms BIGINT NOT NULL,
    PRIMARY KEY (series, time)
) PARTITION BY RANGE (time);
CREATE TABLE ratelimits_per_minute_rest PARTITION OF ratelimits_per_minute DEFAULT;
CREATE INDEX ratelimits_per_minute_time ON ratelimits_per_minute (time);

CREATE TABLE ratelimits_per_hour (
    series BYTEA NOT NULL,
    time BIGINT NOT NULL,
    count BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    latency_us BIGINT NOT NULL,
    latency_le_100us BIGINT NOT NULL,
    latency_le_500us BIGINT NOT NULL,
    latency_le_1ms BIGINT NOT NULL,
    latency_le_5ms BIGINT NOT NULL,
    latency_le_25ms BIGINT NOT NULL,
    latency_le_100ms BIGINT NOT NULL,
    PRIMARY KEY (series, time)
) PARTITION BY RANGE (time);
CREATE TABLE ratelimits_per_hour_rest PARTITION OF ratelimits_per_hour DEFAULT;
CREATE INDEX ratelimits_per_hour_time ON ratelimits_per_hour (time);

CREATE TABLE ratelimits_per_day (
    series BYTEA NOT NULL,
    time BIGINT NOT NULL,
    count BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    latency_us BIGINT NOT NULL,
    latency_le_100us BIGINT NOT NULL,
    latency_le_500us BIGINT NOT NULL,
    latency_le_1ms BIGINT NOT NULL,
    latency_le_5ms BIGINT NOT NULL,
    latency_le_25ms BIGINT NOT NULL,
    latency_le_100ms BIGINT NOT NULL,
    PRIMARY KEY (series, time)
);
CREATE INDEX ratelimits_per_day_time ON ratelimits_per_day (time);

CREATE TABLE ratelimits_per_month (
    series BYTEA NOT NULL,
    time BIGINT NOT NULL,
    count BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    latency_us BIGINT NOT NULL,
    latency_le_100us BIGINT NOT NULL,
    latency_le_500us BIGINT NOT NULL,
    latency_le_1ms BIGINT NOT NULL,
    latency_le_5ms BIGINT NOT NULL,
    latency_le_25ms BIGINT NOT NULL,
    latency_le_100ms BIGINT NOT NULL,
    PRIMARY KEY (series, time)
);
CREATE INDEX ratelimits_per_month_time ON ratelimits_per_month (time);

CREATE TABLE ratelimit_totals (
    workspace_id TEXT COLLATE "C" NOT NULL,
    namespace_id TEXT COLLATE "C" NOT NULL,
    unit TEXT COLLATE "C" NOT NULL,
    time BIGINT NOT NULL,
    passed BOOLEAN NOT NULL,
    count BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    latency_us BIGINT NOT NULL,
    latency_le_100us BIGINT NOT NULL,
    latency_le_500us BIGINT NOT NULL,
    latency_le_1ms BIGINT NOT NULL,
    latency_le_5ms BIGINT NOT NULL,
    latency_le_25ms BIGINT NOT NULL,
    latency_le_100ms BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, namespace_id, unit, time, passed)
);
CREATE INDEX ratelimit_totals_time ON ratelimit_totals (unit, time);
