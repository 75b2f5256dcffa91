-- Who holds a permission is listed page by page: the links of one permission or role, in the order of the keys.
CREATE INDEX key_permissions_holders ON key_permissions (permission_id, key_id);
DROP INDEX key_permissions_permission;
CREATE INDEX key_roles_holders ON key_roles (role_id, key_id);
DROP INDEX key_roles_role;
