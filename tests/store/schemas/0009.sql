-- Written since schema 0009: last uses of keys.
INSERT INTO key_uses (key_id, last_used_at) VALUES
    ('key_2JSRFixWPrpSuuRc9NGPWQ', 1795617955836),
    ('key_DgCqZB6XxcAJEbSrhmUQ5U', 1795617955848),
    ('key_Y4CEBCML49X2JDVz8dCKR8', 1795617955844);
