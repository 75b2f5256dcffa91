-- Written since schema 0025: search texts of keys.
UPDATE keys SET search = 'schlüssel
user_1234'
    WHERE id = 'key_2JSRFixWPrpSuuRc9NGPWQ';
UPDATE keys SET search = 'user_plain'
    WHERE id = 'key_Y4CEBCML49X2JDVz8dCKR8';
UPDATE keys SET search = 'user_gone'
    WHERE id = 'key_A3BXSTFyRWsJ1ASAw6hFVb';
UPDATE keys SET search = 'i̇stanbul'
    WHERE id = 'key_NNh2wRkGhFvMtpCMVgsvQ9';
UPDATE keys SET search = 'imported'
    WHERE id = 'key_TDJpBdyEmV7LbkdUSvcWjL';
