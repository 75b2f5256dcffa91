-- Written since schema 0003: credit leases and replicas.
INSERT INTO purses (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by, withheld_at) VALUES
    ('key_gb1fo5f49HXGpK5pvsAiLX', 1, 77, 10, 4, 1795617955818, 1795617955818, 'rep_1', 1795617955818),
    ('key_gb1fo5f49HXGpK5pvsAiLX', 2, 78, 10, 0, 1795617955818, 1795617955818, 'rep_2', NULL);
INSERT INTO purse_accounts (key_id, epoch, replica_id) VALUES
    ('key_gb1fo5f49HXGpK5pvsAiLX', 1, 'rep_1');
INSERT INTO replicas (id, started_at, seen_at) VALUES
    ('rep_1', 1795617955818, 1795617955818),
    ('rep_2', 1795617955818, 1795617955818);
