-- What 0011_key_lists.sql makes, while the database is in use.
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS keys_latest ON keys (workspace_id, created_at, id) WHERE deleted_at IS NULL;
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS keys_api_latest ON keys (api_id, created_at, id) WHERE deleted_at IS NULL;
