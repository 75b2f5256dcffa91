-- A search text as the trigger of schema 0025 wrote it: only A to Z are in lower case.
UPDATE keys SET search = 'schlÜssel
user_1234'
    WHERE id = 'key_2JSRFixWPrpSuuRc9NGPWQ';
