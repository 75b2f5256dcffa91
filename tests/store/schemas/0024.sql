-- Written since schema 0024: signing keys.
INSERT INTO signing_keys (id, slot, public_key, master_id, sealed, created_at, activated_at, retired_at)
VALUES
    ('sig_4tYwQm8ZrK2vLs6NbXc9Pd', 'current', 'MCowBQYDK2VwAyEA3p7bfXt9wbTTW2HC7OQ1Nz-DQ8hbeGdNrfx-FG-IK08', 'm1', 'sealed_current', 1763700000000, 1763700001000, NULL),
    ('sig_7nHcRf3VgT5xJq1DzEa8Wk', NULL, 'MCowBQYDK2VwAyEAebVWLo_mVPlAeLES6KmLp5AfhTrmlb7X4OORC60ElmQ', 'm1', 'sealed_retired', 1763600000000, 1763600001000, 1763700001000);
