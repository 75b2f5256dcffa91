-- Lists that are searched and paged, and audit entries that tell which of them belong to one act.

-- Every text of a row in lower case, a line each: what a search looks through. The server writes it.
ALTER TABLE permissions ADD COLUMN search TEXT NOT NULL DEFAULT '';
UPDATE permissions SET search = lower(
    id || char(10) || slug || char(10) || name || COALESCE(char(10) || description, ''));
ALTER TABLE roles ADD COLUMN search TEXT NOT NULL DEFAULT '';
UPDATE roles SET search = lower(id || char(10) || name || COALESCE(char(10) || description, ''));
ALTER TABLE identities ADD COLUMN search TEXT NOT NULL DEFAULT '';
UPDATE identities SET search = lower(id || char(10) || external_id);

CREATE INDEX permissions_workspace ON permissions (workspace_id, id);
CREATE INDEX roles_workspace ON roles (workspace_id, id);
CREATE INDEX identities_workspace ON identities (workspace_id, id);

-- What one act wrote has one.
ALTER TABLE audit ADD COLUMN correlation_id TEXT;
ALTER TABLE audit ADD COLUMN actor_name TEXT;
