-- What 0004_lists.sql makes, while the database is in use.
-- step
ALTER TABLE permissions ADD COLUMN IF NOT EXISTS search TEXT NOT NULL DEFAULT '';
-- step
ALTER TABLE roles ADD COLUMN IF NOT EXISTS search TEXT NOT NULL DEFAULT '';
-- step
ALTER TABLE identities ADD COLUMN IF NOT EXISTS search TEXT NOT NULL DEFAULT '';
-- batches of permissions
UPDATE permissions SET search = lower(concat_ws(E'\n', id, slug, name, description))
WHERE search = '' AND id > $1 AND id <= $2;
-- batches of roles
UPDATE roles SET search = lower(concat_ws(E'\n', id, name, description))
WHERE search = '' AND id > $1 AND id <= $2;
-- batches of identities
UPDATE identities SET search = lower(concat_ws(E'\n', id, external_id))
WHERE search = '' AND id > $1 AND id <= $2;
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS permissions_workspace ON permissions (workspace_id, id);
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS roles_workspace ON roles (workspace_id, id);
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS identities_workspace ON identities (workspace_id, id);
-- step
ALTER TABLE audit
    ADD COLUMN IF NOT EXISTS correlation_id TEXT COLLATE "C",
    ADD COLUMN IF NOT EXISTS actor_name TEXT;
