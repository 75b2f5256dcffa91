-- Written since schema 0002: namespaces and overrides.
INSERT INTO namespaces (id, workspace_id, name, on_outage, created_at, deleted_at) VALUES
    ('rlns_VYzpG7WXQBDCK2rCafvacm', 'ws_default', 'ÖFFENTLICH', 'closed', 1795617954799, NULL),
    ('rlns_TemhHTgWd8U7hcsxr6jhnY', 'ws_default', 'gone', 'local', 1795617955029, 1795617955092);
INSERT INTO overrides (id, namespace_id, identifier, "limit", duration_ms, expires_at, created_at, updated_at) VALUES
    ('rlor_YBNJy2CRFykzX4nMj58yMf', 'rlns_VYzpG7WXQBDCK2rCafvacm', 'ΣΊΣΥΦΟΣ', 0, 60000, NULL, 1795617954808, NULL),
    ('rlor_Yw78qjyvgPJRocD23tgmPv', 'rlns_VYzpG7WXQBDCK2rCafvacm', 'Premium_*', 1000000, 86400000, 4102444800000, 1795617954814, 1795617955818);
