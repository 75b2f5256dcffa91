-- Who owns what, and what a verification reads: the tables of the main job.
-- Identifiers sort by their bytes, so that pages of a list mean the same on every server.

CREATE TABLE workspaces (
    id TEXT COLLATE "C" PRIMARY KEY,
    name TEXT NOT NULL,
    enabled BOOLEAN NOT NULL DEFAULT TRUE,
    created_at BIGINT NOT NULL
);

CREATE TABLE root_keys (
    id TEXT COLLATE "C" PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    hash TEXT COLLATE "C" NOT NULL,
    start TEXT NOT NULL,
    name TEXT,
    permissions TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    CONSTRAINT root_keys_hash_unique UNIQUE (hash)
);
CREATE INDEX root_keys_workspace ON root_keys (workspace_id, id);

CREATE TABLE apis (
    id TEXT COLLATE "C" PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    deleted_at BIGINT
);
CREATE INDEX apis_workspace ON apis (workspace_id, id);

CREATE TABLE identities (
    id TEXT COLLATE "C" PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    external_id TEXT COLLATE "C" NOT NULL,
    meta TEXT,
    created_at BIGINT NOT NULL,
    CONSTRAINT identities_external_id_unique UNIQUE (workspace_id, external_id)
);

CREATE TABLE keys (
    id TEXT COLLATE "C" PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    api_id TEXT COLLATE "C" NOT NULL REFERENCES apis (id),
    hash TEXT COLLATE "C" NOT NULL,
    start TEXT NOT NULL,
    prefix TEXT,
    byte_length BIGINT NOT NULL,
    name TEXT,
    meta TEXT,
    identity_id TEXT COLLATE "C" REFERENCES identities (id) ON DELETE SET NULL,
    enabled BOOLEAN NOT NULL,
    expires_at BIGINT,
    -- The bank: the balance that no purse holds. NULL: unlimited.
    credits BIGINT CHECK (credits >= 0),
    -- Rises when the balance is set; purses of an older version are void.
    credits_version BIGINT NOT NULL DEFAULT 0,
    refill_amount BIGINT,
    -- NULL with an amount: daily.
    refill_day BIGINT,
    -- The period for which the balance has been refilled.
    refilled BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    deleted_at BIGINT,
    CONSTRAINT keys_hash_unique UNIQUE (hash)
);
CREATE INDEX keys_api ON keys (api_id, id);
CREATE INDEX keys_identity ON keys (identity_id, id);

CREATE TABLE ratelimits (
    id TEXT COLLATE "C" PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    key_id TEXT COLLATE "C" REFERENCES keys (id) ON DELETE CASCADE,
    identity_id TEXT COLLATE "C" REFERENCES identities (id) ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    "limit" BIGINT NOT NULL,
    duration_ms BIGINT NOT NULL,
    auto_apply BOOLEAN NOT NULL,
    CONSTRAINT ratelimits_key_name_unique UNIQUE (key_id, name),
    CONSTRAINT ratelimits_identity_name_unique UNIQUE (identity_id, name),
    CONSTRAINT ratelimits_one_owner CHECK ((key_id IS NULL) <> (identity_id IS NULL))
);

CREATE TABLE permissions (
    id TEXT COLLATE "C" PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    slug TEXT COLLATE "C" NOT NULL,
    name TEXT NOT NULL,
    description TEXT,
    created_at BIGINT NOT NULL,
    CONSTRAINT permissions_slug_unique UNIQUE (workspace_id, slug)
);

CREATE TABLE roles (
    id TEXT COLLATE "C" PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    name TEXT COLLATE "C" NOT NULL,
    description TEXT,
    created_at BIGINT NOT NULL,
    CONSTRAINT roles_name_unique UNIQUE (workspace_id, name)
);

CREATE TABLE role_permissions (
    role_id TEXT COLLATE "C" NOT NULL REFERENCES roles (id) ON DELETE CASCADE,
    permission_id TEXT COLLATE "C" NOT NULL REFERENCES permissions (id) ON DELETE CASCADE,
    PRIMARY KEY (role_id, permission_id)
);
CREATE INDEX role_permissions_permission ON role_permissions (permission_id);

CREATE TABLE key_permissions (
    key_id TEXT COLLATE "C" NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
    permission_id TEXT COLLATE "C" NOT NULL REFERENCES permissions (id) ON DELETE CASCADE,
    PRIMARY KEY (key_id, permission_id)
);
CREATE INDEX key_permissions_permission ON key_permissions (permission_id);

CREATE TABLE key_roles (
    key_id TEXT COLLATE "C" NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
    role_id TEXT COLLATE "C" NOT NULL REFERENCES roles (id) ON DELETE CASCADE,
    PRIMARY KEY (key_id, role_id)
);
CREATE INDEX key_roles_role ON key_roles (role_id);

-- What has changed that somebody may have cached. Every replica reads it each second; rows live for a day.
CREATE TABLE changes (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at BIGINT NOT NULL,
    subject TEXT NOT NULL
);
CREATE INDEX changes_at ON changes (at);

-- Who changed what, from where and when; written in the transaction of the change itself.
CREATE TABLE audit (
    id TEXT COLLATE "C" PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    at BIGINT NOT NULL,
    event TEXT NOT NULL,
    actor_type TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    remote_address TEXT,
    user_agent TEXT,
    targets TEXT NOT NULL
);
CREATE INDEX audit_workspace ON audit (workspace_id, at);
