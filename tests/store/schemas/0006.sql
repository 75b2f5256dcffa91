-- Written since schema 0006: keys that were issued elsewhere.
INSERT INTO migrations (id, workspace_id, name, algorithm, created_at) VALUES
    ('mig_ynza7aETL4QphzipUv5eat', 'ws_default', 'ÜBERNAHME', 'sha256', 1795617954712);
UPDATE keys SET migration_id = 'mig_ynza7aETL4QphzipUv5eat'
    WHERE id = 'key_TDJpBdyEmV7LbkdUSvcWjL';
