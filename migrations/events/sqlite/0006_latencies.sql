-- Histograms of latencies, written with the totals. `kind` is verifications or ratelimits; `resource_id` is an API, empty for
-- verifications that found no key, or a namespace, and * stands for all of a workspace. `histogram` is a JSON object: the number of
-- latencies by bucket.
CREATE TABLE latencies (
    kind TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    unit TEXT NOT NULL,
    time INTEGER NOT NULL,
    histogram TEXT NOT NULL,
    PRIMARY KEY (kind, workspace_id, resource_id, unit, time)
) STRICT;
CREATE INDEX latencies_time ON latencies (kind, unit, time);

-- Of earlier totals, except those of minutes, only six buckets are known. The buckets that contain their ends stand for them.
INSERT INTO latencies (kind, workspace_id, resource_id, unit, time, histogram)
    SELECT 'verifications', workspace_id, api_id, unit, time, json_object('54', SUM(latency_le_100us), '72', SUM(latency_le_500us), '80', SUM(latency_le_1ms),
        '99', SUM(latency_le_5ms), '117', SUM(latency_le_25ms), '133', SUM(latency_le_100ms),
        '134', SUM(count - latency_le_100us - latency_le_500us - latency_le_1ms - latency_le_5ms - latency_le_25ms - latency_le_100ms))
    FROM verification_totals WHERE unit <> 'minute' GROUP BY workspace_id, api_id, unit, time
    UNION ALL
    SELECT 'verifications', workspace_id, '*', unit, time, json_object('54', SUM(latency_le_100us), '72', SUM(latency_le_500us), '80', SUM(latency_le_1ms),
        '99', SUM(latency_le_5ms), '117', SUM(latency_le_25ms), '133', SUM(latency_le_100ms),
        '134', SUM(count - latency_le_100us - latency_le_500us - latency_le_1ms - latency_le_5ms - latency_le_25ms - latency_le_100ms))
    FROM verification_totals WHERE unit <> 'minute' GROUP BY workspace_id, unit, time
    UNION ALL
    SELECT 'ratelimits', workspace_id, namespace_id, unit, time, json_object('54', SUM(latency_le_100us), '72', SUM(latency_le_500us), '80', SUM(latency_le_1ms),
        '99', SUM(latency_le_5ms), '117', SUM(latency_le_25ms), '133', SUM(latency_le_100ms),
        '134', SUM(count - latency_le_100us - latency_le_500us - latency_le_1ms - latency_le_5ms - latency_le_25ms - latency_le_100ms))
    FROM ratelimit_totals WHERE unit <> 'minute' GROUP BY workspace_id, namespace_id, unit, time
    UNION ALL
    SELECT 'ratelimits', workspace_id, '*', unit, time, json_object('54', SUM(latency_le_100us), '72', SUM(latency_le_500us), '80', SUM(latency_le_1ms),
        '99', SUM(latency_le_5ms), '117', SUM(latency_le_25ms), '133', SUM(latency_le_100ms),
        '134', SUM(count - latency_le_100us - latency_le_500us - latency_le_1ms - latency_le_5ms - latency_le_25ms - latency_le_100ms))
    FROM ratelimit_totals WHERE unit <> 'minute' GROUP BY workspace_id, unit, time;
