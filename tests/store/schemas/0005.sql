-- Written since schema 0005: settings of APIs, and recoverable keys.
UPDATE apis SET default_prefix = 'prod', default_byte_length = 24, recoverable_keys = TRUE
    WHERE id = 'api_LLUxauRsDdY2pdBwddn4GD';
UPDATE apis SET delete_protection = TRUE, allowed_networks = '["127.0.0.0/8","2001:db8::1/128"]'
    WHERE id = 'api_zgWgGFYMBgUGPys7DgeU7N';
INSERT INTO data_keys (id, workspace_id, master_id, sealed, created_at) VALUES
    ('dk_YiQtpm2imzDpZfjsCGyZ9T', 'ws_default', 'BaTzTSH7aDy', 'LjEdBJYEpIFvJAr21UxVpawaH9jKJbUT+H3wf3nz0wBjvFolfCdY69Eoj45WuTdldHgN6u5YXh4C5sqE', 1795617954494);
INSERT INTO sealed_keys (key_id, data_key_id, sealed) VALUES
    ('key_2JSRFixWPrpSuuRc9NGPWQ', 'dk_YiQtpm2imzDpZfjsCGyZ9T', 'b4SXvjT9XvkA0eApDRZe8IhR4JITbQTdooFXWP8ArFTWobSlNCuNA5qTscEeoVUfXHSQGFlRsITEgxF8cBQ+YHN4');
