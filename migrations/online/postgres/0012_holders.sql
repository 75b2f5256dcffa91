-- What 0012_holders.sql makes, while the database is in use.
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS key_permissions_holders ON key_permissions (permission_id, key_id);
-- step
DROP INDEX CONCURRENTLY IF EXISTS key_permissions_permission;
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS key_roles_holders ON key_roles (role_id, key_id);
-- step
DROP INDEX CONCURRENTLY IF EXISTS key_roles_role;
