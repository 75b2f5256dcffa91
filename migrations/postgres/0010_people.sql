-- People who use the dashboard: who they are, where they are signed in, what they belong to; and root keys as they
-- list them.

CREATE TABLE people (
    id TEXT COLLATE "C" PRIMARY KEY,
    -- In lower case.
    email TEXT COLLATE "C" NOT NULL,
    -- A hash, as argon2 writes it with its parameters.
    password TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    CONSTRAINT people_email_unique UNIQUE (email)
);

CREATE TABLE memberships (
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    person_id TEXT COLLATE "C" NOT NULL REFERENCES people (id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    joined_at BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, person_id),
    CONSTRAINT memberships_role CHECK (role IN ('owner', 'admin', 'viewer'))
);
CREATE INDEX memberships_person ON memberships (person_id);

-- A browser in which somebody is signed in; of its token there is only the hash.
CREATE TABLE sessions (
    id TEXT COLLATE "C" PRIMARY KEY,
    person_id TEXT COLLATE "C" NOT NULL REFERENCES people (id) ON DELETE CASCADE,
    hash TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    address TEXT,
    user_agent TEXT,
    CONSTRAINT sessions_hash_unique UNIQUE (hash)
);
CREATE INDEX sessions_person ON sessions (person_id, seen_at);
CREATE INDEX sessions_seen ON sessions (seen_at);

-- Links that make somebody a member, once; of their token there is only the hash.
CREATE TABLE invitations (
    id TEXT COLLATE "C" PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    hash TEXT COLLATE "C" NOT NULL,
    kind TEXT NOT NULL,
    role TEXT NOT NULL,
    invited_by TEXT,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    CONSTRAINT invitations_hash_unique UNIQUE (hash),
    CONSTRAINT invitations_kind CHECK (kind IN ('first', 'operator', 'member')),
    CONSTRAINT invitations_role CHECK (role IN ('owner', 'admin', 'viewer'))
);
CREATE INDEX invitations_workspace ON invitations (workspace_id, created_at);

-- As in the other lists that are searched.
ALTER TABLE root_keys ADD COLUMN search TEXT NOT NULL DEFAULT '';
UPDATE root_keys SET search = lower(concat_ws(E'\n', id, start, name));
CREATE INDEX root_keys_latest ON root_keys (workspace_id, created_at, id);

-- When root keys were last used, as key_uses tells it of keys.
CREATE TABLE root_key_uses (
    root_key_id TEXT COLLATE "C" PRIMARY KEY,
    last_used_at BIGINT NOT NULL
);
