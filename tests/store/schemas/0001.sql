-- Written since schema 0001: workspaces, APIs, keys, identities, permissions and roles.
INSERT INTO workspaces (id, name, enabled, created_at) VALUES
    ('ws_default', 'default', TRUE, 1795617953782),
    ('ws_Z1AnNfJXJ1zhrwXzttLFKD', 'ANDERE Firma', TRUE, 1795617955221),
    ('ws_disabled', 'Gesperrt', FALSE, 1795617955818);
INSERT INTO root_keys (id, workspace_id, hash, start, name, permissions, created_at, expires_at, revoked_at) VALUES
    ('key_oTWWFfknTSvhHmgf5eQTD6', 'ws_default', 'qaDal6b9PzbN0hYt1rza1RSAWXFmmxWUkcch/XJ5Rj4=', 'root', 'KEYWARD_ROOT_KEY', '["api.*.verify_key","api.*.read_key","api.*.decrypt_key","api.*.create_key","ratelimit.*.limit"]', 1795617953785, NULL, NULL),
    ('key_6DoiYYKn9m7sj5oa98prcz', 'ws_Z1AnNfJXJ1zhrwXzttLFKD', '0qMVXrCRaTyNnK3NzNYJjvWiWvCNXUcdOVDtN+btL1k=', 'keyward_LxT1', 'ÉCOLE', '["api.*.create_api","api.*.create_key","api.*.verify_key","rbac.*.create_permission"]', 1795617955427, 4102444800000, NULL),
    ('key_zcAoVZkY2g9AiB6SiBTS1s', 'ws_default', '415ghGWPSF8ZY3E4tsDlLZP9uHEXKE5s/pfixe+R7Rc=', 'keyward_EEJM', 'revoked', '["api.*.read_api"]', 1795617955606, NULL, 1795617955748);
INSERT INTO apis (id, workspace_id, name, created_at, deleted_at) VALUES
    ('api_LLUxauRsDdY2pdBwddn4GD', 'ws_default', 'ÄPFEL und Birnen', 1795617953824, NULL),
    ('api_2XbBzUmYL8BTJEmd8PcEor', 'ws_default', 'ΓΕΙΑ gone', 1795617953829, 1795617954602),
    ('api_zgWgGFYMBgUGPys7DgeU7N', 'ws_default', 'plain', 1795617954220, NULL),
    ('api_ASz5HEEmSDX2Uc1LLBSPuQ', 'ws_Z1AnNfJXJ1zhrwXzttLFKD', 'other', 1795617955809, NULL);
INSERT INTO identities (id, workspace_id, external_id, meta, created_at) VALUES
    ('id_ZvHcMkDgyFgNBT37fZqRpL', 'ws_default', 'USER_1234', '{"plan":"gold","nested":{"a":[1,null,"Ü \"q\" \\"]}}', 1795617954471),
    ('id_BmrkXT28t9VSaNVpV2i2me', 'ws_default', 'user_plain', NULL, 1795617954486),
    ('id_bVkaHiPr2CYffNFPCaCQwT', 'ws_default', 'İSTANBUL', NULL, 1795617954631);
INSERT INTO keys (id, workspace_id, api_id, hash, start, prefix, byte_length, name, meta, identity_id, enabled, expires_at, credits, credits_version, refill_amount, refill_day, refilled, created_at, updated_at, deleted_at) VALUES
    ('key_2JSRFixWPrpSuuRc9NGPWQ', 'ws_default', 'api_LLUxauRsDdY2pdBwddn4GD', 'OnU4JRfuZar50vsFOXIZJ9otlpHO3AtMP1Ds3UPXwWY=', 'prod_Akkz', 'prod', 24, 'SCHLÜSSEL', '{"tier":1,"text":"Ünïcødé 支付 🦀"}', 'id_ZvHcMkDgyFgNBT37fZqRpL', TRUE, 4102444800000, 17, 1, 1000, NULL, 20000, 1795617954494, 1795617955818, NULL),
    ('key_zpHFGB6E3zdybFhtWCMDRf', 'ws_default', 'api_LLUxauRsDdY2pdBwddn4GD', 'wUGnfUUujT5n+IywjlHqnKpxlvrZHj4Bb8oyfUfjOZM=', 'test_GvNU', 'test', 24, NULL, NULL, NULL, TRUE, NULL, 5, 1, 7, 31, 24321, 1795617954520, NULL, NULL),
    ('key_Y4CEBCML49X2JDVz8dCKR8', 'ws_default', 'api_LLUxauRsDdY2pdBwddn4GD', 'lsXMxGJsvBL6RwmxOrNFnT+tTkGn46wPULCowlDd1is=', 'prod_88FT', 'prod', 24, NULL, NULL, 'id_BmrkXT28t9VSaNVpV2i2me', TRUE, NULL, 41, 1, NULL, NULL, 0, 1795617954530, NULL, NULL),
    ('key_gb1fo5f49HXGpK5pvsAiLX', 'ws_default', 'api_LLUxauRsDdY2pdBwddn4GD', 'XSQdXd+YQnmmxqXxl/PzkyC/uXsZwJx+2/rnKLW54fg=', 'prod_8zJx', 'prod', 24, NULL, NULL, NULL, TRUE, NULL, 0, 2, NULL, NULL, 0, 1795617954539, NULL, NULL),
    ('key_jmGZ3mnY3uFbFvCEbzNtVs', 'ws_default', 'api_LLUxauRsDdY2pdBwddn4GD', 'er+FRL9vvPKHXABYYZ5VKW2Z1s5iWTcFaHFi4UkAnow=', 'prod_Fk5Y', 'prod', 24, NULL, NULL, NULL, FALSE, NULL, 9007199254740991, 1, NULL, NULL, 0, 1795617954547, NULL, NULL),
    ('key_8JSqHchJWY23d3gAa4GeA8', 'ws_default', 'api_LLUxauRsDdY2pdBwddn4GD', 'bxzcirR8DRQ6pu6YHZyp5FWRlPZLJyQ/DLuFUusKVzU=', 'prod_Ebpc', 'prod', 24, NULL, NULL, NULL, TRUE, 1700000000000, NULL, 1, NULL, NULL, 0, 1795617954557, NULL, NULL),
    ('key_uFe9NuXksJrVkfYo3JPSdw', 'ws_default', 'api_LLUxauRsDdY2pdBwddn4GD', 'rJdNlgeyvyJqmH2elSd5Kfqpy+7xwQYj3BKuPvwUEPs=', 'prod_MQUK', 'prod', 24, NULL, NULL, NULL, TRUE, NULL, NULL, 1, NULL, NULL, 0, 1795617954566, NULL, 1795617954576),
    ('key_c3RyQXaLLi6dt11zf8VkwR', 'ws_default', 'api_2XbBzUmYL8BTJEmd8PcEor', 'x9vJWdgO0oKeOPvF8AkW76x5bJMcw9Q8BEyhCtODd2w=', '7MPy', NULL, 16, NULL, NULL, NULL, TRUE, NULL, NULL, 1, NULL, NULL, 0, 1795617954587, NULL, NULL),
    ('key_mL8Gm4PN7a6cnWkx4oAXVA', 'ws_default', 'api_zgWgGFYMBgUGPys7DgeU7N', 'qMTsUEBadosUyjIEA0t4BAwKiCfML5jJP0murUavoaI=', '5J6N', NULL, 16, NULL, NULL, NULL, TRUE, NULL, NULL, 1, NULL, NULL, 0, 1795617954595, NULL, NULL),
    ('key_A3BXSTFyRWsJ1ASAw6hFVb', 'ws_default', 'api_LLUxauRsDdY2pdBwddn4GD', 'q+Q9F9dvBDX/rVzcK6He8L8nbEn1HHdXHZ750NMQz24=', 'prod_F9ob', 'prod', 24, NULL, NULL, NULL, TRUE, NULL, NULL, 1, NULL, NULL, 0, 1795617954610, NULL, NULL),
    ('key_NNh2wRkGhFvMtpCMVgsvQ9', 'ws_default', 'api_LLUxauRsDdY2pdBwddn4GD', 'X8kdCnSwA4zjiDO8dv03SMZAp/7k3RdrTTsZsUKqtds=', 'prod_FRTL', 'prod', 24, NULL, NULL, 'id_bVkaHiPr2CYffNFPCaCQwT', TRUE, NULL, NULL, 1, NULL, NULL, 0, 1795617954631, NULL, NULL),
    ('key_LDB4RZ71hmpUiJg6FDrVLN', 'ws_default', 'api_LLUxauRsDdY2pdBwddn4GD', 'ad6oZFuFVirQR2hvOL+jURjZdCBtRgDDYJiQ4rod67Y=', 'prod_F2hC', 'prod', 24, NULL, NULL, NULL, TRUE, NULL, NULL, 1, NULL, NULL, 0, 1795617954643, NULL, NULL),
    ('key_TDJpBdyEmV7LbkdUSvcWjL', 'ws_default', 'api_LLUxauRsDdY2pdBwddn4GD', 'gkzuEHJC7gJtUsIZEFbBwNBOwQc2pivUMdbFRNLfkfw=', '', NULL, 16, 'imported', NULL, NULL, TRUE, NULL, NULL, 1, NULL, NULL, 0, 1795617954787, NULL, NULL),
    ('key_DgCqZB6XxcAJEbSrhmUQ5U', 'ws_Z1AnNfJXJ1zhrwXzttLFKD', 'api_ASz5HEEmSDX2Uc1LLBSPuQ', 'qlJWC6n398OTN1bw+ZwCDf5Uu44auATuHkyMctbwC60=', 'C1im', NULL, 16, NULL, NULL, NULL, TRUE, NULL, NULL, 1, NULL, NULL, 0, 1795617955818, NULL, NULL);
INSERT INTO ratelimits (id, workspace_id, key_id, identity_id, name, "limit", duration_ms, auto_apply) VALUES
    ('rl_Z31p54tyk5k6t29s6mmeJw', 'ws_default', NULL, 'id_ZvHcMkDgyFgNBT37fZqRpL', 'requests', 100, 60000, TRUE),
    ('rl_yrToEp1LYxjNDtW5vB6x25', 'ws_default', 'key_2JSRFixWPrpSuuRc9NGPWQ', NULL, 'requests', 10, 1000, TRUE),
    ('rl_KJMFxfPd5dCtXVbXhaBnCY', 'ws_default', 'key_2JSRFixWPrpSuuRc9NGPWQ', NULL, 'tokens', 5000, 86400000, FALSE),
    ('rl_goPQEXEgFc9zCG2ZnXmwhd', 'ws_default', 'key_LDB4RZ71hmpUiJg6FDrVLN', NULL, 'default', 3, 1000, TRUE);
INSERT INTO permissions (id, workspace_id, slug, name, description, created_at) VALUES
    ('perm_sRHjVXVbmAUVVbZYNg7C1D', 'ws_default', 'docs.read', 'ЧТЕНИЕ', 'Read every document', 1795617954406),
    ('perm_g5sk94gLF7NVjah5A11YZH', 'ws_default', 'docs.write', 'Write', NULL, 1795617954419),
    ('perm_LGHpbpcG7GFD13syiFU6PP', 'ws_Z1AnNfJXJ1zhrwXzttLFKD', 'docs.read', 'docs.read', NULL, 1795617955818);
INSERT INTO roles (id, workspace_id, name, description, created_at) VALUES
    ('role_w4kuwuxWJ4xnZLFPMRBzAu', 'ws_default', 'ΣΊΣΥΦΟΣ', 'Rolls the stone', 1795617954432),
    ('role_iiE3jw225ry9shdiycKUbx', 'ws_default', 'viewer', NULL, 1795617954444);
INSERT INTO role_permissions (role_id, permission_id) VALUES
    ('role_w4kuwuxWJ4xnZLFPMRBzAu', 'perm_g5sk94gLF7NVjah5A11YZH');
INSERT INTO key_permissions (key_id, permission_id) VALUES
    ('key_2JSRFixWPrpSuuRc9NGPWQ', 'perm_sRHjVXVbmAUVVbZYNg7C1D'),
    ('key_DgCqZB6XxcAJEbSrhmUQ5U', 'perm_LGHpbpcG7GFD13syiFU6PP');
INSERT INTO key_roles (key_id, role_id) VALUES
    ('key_2JSRFixWPrpSuuRc9NGPWQ', 'role_w4kuwuxWJ4xnZLFPMRBzAu');
INSERT INTO changes (at, subject) VALUES
    (1795617953786, 'new:a9a0da97a6fd3f36'),
    (1795617953929, 'api:api_LLUxauRsDdY2pdBwddn4GD'),
    (1795617954317, 'api:api_zgWgGFYMBgUGPys7DgeU7N');
INSERT INTO audit (id, workspace_id, at, event, actor_type, actor_id, remote_address, user_agent, targets) VALUES
    ('log_fSTnhuTbPbXHsHPP3mix39', 'ws_default', 1795617953785, 'rootKey.create', 'system', 'cli', NULL, NULL, '[{"id":"key_oTWWFfknTSvhHmgf5eQTD6","name":"KEYWARD_ROOT_KEY","type":"key"}]'),
    ('log_PbxVXcPT76DbEtHwttRW3h', 'ws_default', 1795617953824, 'api.create', 'rootkey', 'key_oTWWFfknTSvhHmgf5eQTD6', '127.0.0.1', 'client/1.0', '[{"id":"api_LLUxauRsDdY2pdBwddn4GD","name":"ÄPFEL und Birnen","type":"api"}]'),
    ('log_gZVdZ9D8F3ak2WADTQSWXg', 'ws_default', 1795617953916, 'api.update', 'system', 'cli', NULL, NULL, '[{"id":"api_LLUxauRsDdY2pdBwddn4GD","name":"ÄPFEL und Birnen","type":"api"}]'),
    ('log_FAFNYFYCqD9rgDnRTLx9Pr', 'ws_default', 1795617954309, 'api.update', 'system', 'cli', NULL, NULL, '[{"id":"api_zgWgGFYMBgUGPys7DgeU7N","name":"plain","type":"api"}]'),
    ('log_bFsHcFkp7qJXgzNcsLL2sp', 'ws_default', 1795617954471, 'identity.create', 'rootkey', 'key_oTWWFfknTSvhHmgf5eQTD6', '127.0.0.1', 'client/1.0', '[{"id":"id_ZvHcMkDgyFgNBT37fZqRpL","name":"USER_1234","type":"identity"}]'),
    ('log_7864CvmQP9ur6nQxZQEZ9m', 'ws_default', 1795617954486, 'identity.create', 'rootkey', 'key_oTWWFfknTSvhHmgf5eQTD6', '127.0.0.1', 'client/1.0', '[{"id":"id_BmrkXT28t9VSaNVpV2i2me","name":"user_plain","type":"identity"}]'),
    ('log_Keo3gtvGC1U2NGesfRarzL', 'ws_default', 1795617954494, 'authorization.connect_role_and_key', 'rootkey', 'key_oTWWFfknTSvhHmgf5eQTD6', '127.0.0.1', 'client/1.0', '[{"id":"key_2JSRFixWPrpSuuRc9NGPWQ","name":"SCHLÜSSEL","type":"key"},{"id":"role_w4kuwuxWJ4xnZLFPMRBzAu","name":"ΣΊΣΥΦΟΣ","type":"role"}]'),
    ('log_fA5GKFKns712J6x1bVTdKL', 'ws_default', 1795617954576, 'key.delete', 'rootkey', 'key_oTWWFfknTSvhHmgf5eQTD6', '127.0.0.1', 'client/1.0', '[{"id":"key_uFe9NuXksJrVkfYo3JPSdw","meta":{"permanent":false},"type":"key"}]'),
    ('log_AkC3huVuVx4A3bMtTJuiJs', 'ws_default', 1795617954712, 'migration.create', 'system', 'cli', NULL, NULL, '[{"id":"mig_ynza7aETL4QphzipUv5eat","name":"ÜBERNAHME","type":"migration"}]'),
    ('log_9wAYhn6wD1W3mkzjL6UZJw', 'ws_default', 1795617954808, 'ratelimit.set_override', 'rootkey', 'key_oTWWFfknTSvhHmgf5eQTD6', '127.0.0.1', 'client/1.0', '[{"id":"rlns_VYzpG7WXQBDCK2rCafvacm","name":"ÖFFENTLICH","type":"ratelimitNamespace"},{"id":"rlor_YBNJy2CRFykzX4nMj58yMf","name":"ΣΊΣΥΦΟΣ","type":"ratelimitOverride"}]'),
    ('log_6muLa1Dp6TUe3wP5evcRL6', 'ws_default', 1795617954814, 'ratelimit.set_override', 'rootkey', 'key_oTWWFfknTSvhHmgf5eQTD6', '127.0.0.1', 'client/1.0', '[{"id":"rlns_VYzpG7WXQBDCK2rCafvacm","name":"ÖFFENTLICH","type":"ratelimitNamespace"},{"id":"rlor_Yw78qjyvgPJRocD23tgmPv","name":"Premium_*","type":"ratelimitOverride"}]'),
    ('log_mZRZ64t556BdEQno3ZMTVP', 'ws_default', 1795617955606, 'rootKey.create', 'system', 'cli', NULL, NULL, '[{"id":"key_zcAoVZkY2g9AiB6SiBTS1s","name":"revoked","type":"key"}]'),
    ('log_JXwoBhYaczTxbiK1jvDyCK', 'ws_Z1AnNfJXJ1zhrwXzttLFKD', 1795617955809, 'api.create', 'rootkey', 'key_6DoiYYKn9m7sj5oa98prcz', '127.0.0.1', 'client/1.0', '[{"id":"api_ASz5HEEmSDX2Uc1LLBSPuQ","name":"other","type":"api"}]');
