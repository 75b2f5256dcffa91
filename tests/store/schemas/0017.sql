-- Written since schema 0017: what replicas know of the change feed.
UPDATE replicas SET feed = 'era_1', grace_ms = 900000
    WHERE id = 'rep_1';
INSERT INTO change_acks (intent, replica_id, at) VALUES
    (1, 'rep_1', 1795617955818);
