-- Written since schema 0010: users, and search texts of root keys.
UPDATE root_keys SET search = 'key_otwwffkntsvhhmgf5eqtd6
root
keyward_root_key'
    WHERE id = 'key_oTWWFfknTSvhHmgf5eQTD6';
UPDATE root_keys SET search = 'key_6doiyykn9m7sj5oa98prcz
keyward_lxt1
école'
    WHERE id = 'key_6DoiYYKn9m7sj5oa98prcz';
UPDATE root_keys SET search = 'key_zcaovzky2g9aib6sibts1s
keyward_eejm
revoked'
    WHERE id = 'key_zcAoVZkY2g9AiB6SiBTS1s';
INSERT INTO people (id, email, password, created_at) VALUES
    ('user_ada', 'ada@example.com', '$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0$L0hVPdY4yHkKkXl3Qb5cQm8mUoYVgYx0w5o3rjYF1cE', 1795617955818),
    ('user_bjorn', 'björn@example.com', '', 1795617955818);
INSERT INTO memberships (workspace_id, person_id, role, joined_at) VALUES
    ('ws_default', 'user_ada', 'owner', 1795617955818),
    ('ws_default', 'user_bjorn', 'viewer', 1795617955818),
    ('ws_Z1AnNfJXJ1zhrwXzttLFKD', 'user_ada', 'admin', 1795617955818);
INSERT INTO sessions (id, person_id, hash, created_at, seen_at, address, user_agent) VALUES
    ('sess_1', 'user_ada', 'hash_of_a_session', 1795617955818, 1795617955818, '192.0.2.7', 'Mozilla/5.0'),
    ('sess_2', 'user_bjorn', 'hash_of_another_session', 1795617955818, 1795617955818, NULL, NULL);
INSERT INTO invitations (id, workspace_id, hash, kind, role, invited_by, created_at, expires_at) VALUES
    ('inv_WvhuzoL6AQRw2LYzui8oME', 'ws_default', 'cgUXYUnGomYtd4uvGR7l47Dl1Yh7H02JMye/eRfKZi0=', 'first', 'owner', NULL, 1795617953790, 1795704353790),
    ('inv_2', 'ws_default', 'hash_of_an_invitation', 'member', 'viewer', 'user_ada', 1795617955818, 4102444800000);
INSERT INTO root_key_uses (root_key_id, last_used_at) VALUES
    ('key_6DoiYYKn9m7sj5oa98prcz', 1795617955809),
    ('key_oTWWFfknTSvhHmgf5eQTD6', 1795617953823);
