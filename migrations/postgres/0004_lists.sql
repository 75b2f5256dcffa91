-- Lists that are searched and paged, and audit entries that tell which of them belong to one act.

-- Every text of a row in lower case, a line each: what a search looks through. The server writes it.
ALTER TABLE permissions ADD COLUMN search TEXT NOT NULL DEFAULT '';
UPDATE permissions SET search = lower(concat_ws(E'\n', id, slug, name, description));
ALTER TABLE roles ADD COLUMN search TEXT NOT NULL DEFAULT '';
UPDATE roles SET search = lower(concat_ws(E'\n', id, name, description));
ALTER TABLE identities ADD COLUMN search TEXT NOT NULL DEFAULT '';
UPDATE identities SET search = lower(concat_ws(E'\n', id, external_id));

CREATE INDEX permissions_workspace ON permissions (workspace_id, id);
CREATE INDEX roles_workspace ON roles (workspace_id, id);
CREATE INDEX identities_workspace ON identities (workspace_id, id);

-- What one act wrote has one.
ALTER TABLE audit ADD COLUMN correlation_id TEXT COLLATE "C";
ALTER TABLE audit ADD COLUMN actor_name TEXT;
