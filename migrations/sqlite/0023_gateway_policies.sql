-- Gateway policies: how the requests of a gateway are judged.

CREATE TABLE gateway_policies (
    id TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    name TEXT NOT NULL,
    -- Everything but the name, as JSON.
    config TEXT NOT NULL,
    -- The hash of the secret, and that of the one before it, which is valid until it expires.
    secret_hash TEXT NOT NULL,
    previous_secret_hash TEXT,
    previous_secret_expires_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    deleted_at BIGINT,
    search TEXT NOT NULL
);

-- The name of a deleted policy is free.
CREATE UNIQUE INDEX gateway_policies_name_unique ON gateway_policies (workspace_id, name)
    WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX gateway_policies_secret_hash_unique ON gateway_policies (secret_hash);
CREATE INDEX gateway_policies_previous_secret_hash ON gateway_policies (previous_secret_hash)
    WHERE previous_secret_hash IS NOT NULL;
-- A gateway names its policy without a workspace.
CREATE INDEX gateway_policies_name ON gateway_policies (name);
-- A page of a workspace's policies.
CREATE INDEX gateway_policies_workspace ON gateway_policies (workspace_id, id);
