-- What 0027_audit_filters.sql makes, while the database is in use.
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS audit_event ON audit (workspace_id, event, at, id);
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS audit_actor_id ON audit (workspace_id, actor_id, at, id);
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS audit_actor_name ON audit (workspace_id, actor_name, at, id);
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS audit_targets ON audit USING gin (CAST(targets AS jsonb) jsonb_path_ops);
