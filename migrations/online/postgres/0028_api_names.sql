-- What 0028_api_names.sql makes, while the database is in use.
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS apis_name ON apis (workspace_id, name COLLATE "C", id) WHERE deleted_at IS NULL;
