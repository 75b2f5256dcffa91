-- Written since schema 0026: results of forms.
INSERT INTO form_results (session_id, form, created_id, sealed, shown_at, created_at) VALUES
    ('sess_1', 'hash_of_a_form', 'api_LLUxauRsDdY2pdBwddn4GD', NULL, NULL, 1795617955818),
    ('sess_1', 'hash_of_another_form', 'key_2JSRFixWPrpSuuRc9NGPWQ', 'sealed', NULL, 1795617955818),
    ('sess_1', 'hash_of_a_third_form', 'key_oTWWFfknTSvhHmgf5eQTD6', NULL, 1795617955819, 1795617955818);
