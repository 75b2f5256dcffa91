-- Written since schema 0021: the heartbeats of replicas.
UPDATE replicas SET heartbeat = 42;
