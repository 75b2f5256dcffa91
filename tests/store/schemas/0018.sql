-- Written since schema 0018: numbers of leases, and replicas that were counted out.
UPDATE purses SET number = 6
    WHERE key_id = 'key_gb1fo5f49HXGpK5pvsAiLX' AND epoch = 1;
UPDATE purses SET number = 7
    WHERE key_id = 'key_gb1fo5f49HXGpK5pvsAiLX' AND epoch = 2;
UPDATE replicas SET silent_seen_at = 1795617955818, gone = 8
    WHERE id = 'rep_2';
