-- What an API is set to, and the sealed copies of recoverable keys.

ALTER TABLE apis ADD COLUMN default_prefix TEXT;
ALTER TABLE apis ADD COLUMN default_byte_length BIGINT;
ALTER TABLE apis ADD COLUMN recoverable_keys BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE apis ADD COLUMN delete_protection BOOLEAN NOT NULL DEFAULT FALSE;
-- A JSON list of the networks from which its keys may be used. NULL: from anywhere.
ALTER TABLE apis ADD COLUMN allowed_networks TEXT;

-- What seals the recoverable keys of a workspace; itself sealed with the master key.
CREATE TABLE data_keys (
    id TEXT COLLATE "C" PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    -- The master key, by what tells it from others.
    master_id TEXT COLLATE "C" NOT NULL,
    sealed TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    CONSTRAINT data_keys_workspace_unique UNIQUE (workspace_id)
);

CREATE TABLE sealed_keys (
    key_id TEXT COLLATE "C" PRIMARY KEY REFERENCES keys (id) ON DELETE CASCADE,
    data_key_id TEXT COLLATE "C" NOT NULL REFERENCES data_keys (id),
    sealed TEXT NOT NULL
);
