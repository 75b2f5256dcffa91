-- Keys that were issued elsewhere, of which only the hash is known.

CREATE TABLE migrations (
    id TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    name TEXT,
    -- How the hashes were made.
    algorithm TEXT NOT NULL CHECK (algorithm IN ('sha256', 'prefixed-api-key')),
    created_at BIGINT NOT NULL
);
CREATE INDEX migrations_workspace ON migrations (workspace_id, id);

-- The migration whose algorithm made the hash; NULL: it is our own.
ALTER TABLE keys ADD COLUMN migration_id TEXT REFERENCES migrations (id);
