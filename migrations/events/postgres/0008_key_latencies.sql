-- Histograms of latencies by series, so of keys, identities and tags: JSON objects with the number of latencies by bucket. Empty in the
-- rows of older versions.
ALTER TABLE verifications_per_minute ADD COLUMN histogram JSONB NOT NULL DEFAULT '{}';
ALTER TABLE verifications_per_hour ADD COLUMN histogram JSONB NOT NULL DEFAULT '{}';
ALTER TABLE verifications_per_day ADD COLUMN histogram JSONB NOT NULL DEFAULT '{}';
ALTER TABLE verifications_per_month ADD COLUMN histogram JSONB NOT NULL DEFAULT '{}';
