-- Written since schema 0008: owners and environments of keys, approximate limits.
UPDATE keys SET owner_id = 'USER_1234'
    WHERE id = 'key_2JSRFixWPrpSuuRc9NGPWQ';
UPDATE keys SET owner_id = 'user_plain'
    WHERE id = 'key_Y4CEBCML49X2JDVz8dCKR8';
UPDATE keys SET owner_id = 'user_gone'
    WHERE id = 'key_A3BXSTFyRWsJ1ASAw6hFVb';
UPDATE keys SET owner_id = 'İSTANBUL'
    WHERE id = 'key_NNh2wRkGhFvMtpCMVgsvQ9';
UPDATE keys SET environment = 'live'
    WHERE id = 'key_LDB4RZ71hmpUiJg6FDrVLN';
UPDATE ratelimits SET is_async = TRUE
    WHERE id = 'rl_goPQEXEgFc9zCG2ZnXmwhd';
