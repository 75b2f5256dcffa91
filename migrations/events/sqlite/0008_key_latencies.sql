-- Histograms of latencies by series, so of keys, identities and tags: JSON objects with the number of latencies by bucket. Empty in the
-- rows of older versions.
ALTER TABLE verifications_per_minute ADD COLUMN histogram TEXT NOT NULL DEFAULT '{}';
ALTER TABLE verifications_per_hour ADD COLUMN histogram TEXT NOT NULL DEFAULT '{}';
ALTER TABLE verifications_per_day ADD COLUMN histogram TEXT NOT NULL DEFAULT '{}';
ALTER TABLE verifications_per_month ADD COLUMN histogram TEXT NOT NULL DEFAULT '{}';

-- Sums over a span of time read the index alone, without the rows and their histograms.
DROP INDEX verifications_per_hour_time;
CREATE INDEX verifications_per_hour_time ON verifications_per_hour (time, series, count, spent_credits, latency_us);
DROP INDEX verifications_per_day_time;
CREATE INDEX verifications_per_day_time ON verifications_per_day (time, series, count, spent_credits, latency_us);
