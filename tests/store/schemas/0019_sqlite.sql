-- Debits that are not in the balances yet.
INSERT INTO debits (units) VALUES
    ('{"key_zpHFGB6E3zdybFhtWCMDRf":2}'),
    ('{"key_zpHFGB6E3zdybFhtWCMDRf":1,"key_jmGZ3mnY3uFbFvCEbzNtVs":1}');
