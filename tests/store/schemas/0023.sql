-- Written since schema 0023: gateway policies.
INSERT INTO gateway_policies (id, workspace_id, name, config, secret_hash, previous_secret_hash, previous_secret_expires_at, created_at, updated_at, deleted_at, search)
VALUES
    ('gwp_7sNbC5dF3XkTzQ9vLm2RwY', 'ws_default', 'Edge', '{"apiIds":["api_LLUxauRsDdY2pdBwddn4GD"],"keyFrom":["authorization:bearer"]}', 'L5uVnCLvBJ0tbyMKEpyxWTlhp5wNcX1w0Zr6Qz0hQXQ=', 'q1Zk3TjUH0b1x2sYtIwVd0m8nRkJp5oGf4e3a2c1b0A=', 1773144000000, 1763700000000, 1763700001000, NULL, 'gwp_7snbc5df3xktzq9vlm2rwy
edge'),
    ('gwp_K2mZcB9gL8HnVpR4tJx6Wq', 'ws_default', 'Old', '{"apiIds":["api_LLUxauRsDdY2pdBwddn4GD"],"keyFrom":["authorization:bearer"]}', 'b0A1Zk3TjUH0q1x2sYtIwVd0m8nRkJp5oGf4e3a2c1b=', NULL, NULL, 1763700000000, NULL, 1763700002000, 'gwp_k2mzcb9gl8hnvpr4tjx6wq
old');
