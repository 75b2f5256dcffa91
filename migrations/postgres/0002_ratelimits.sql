-- The standalone limiter: namespaces, and the limits that stand in for those of single identifiers.

CREATE TABLE namespaces (
    id TEXT COLLATE "C" PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    name TEXT COLLATE "C" NOT NULL,
    -- What is answered while the counters are away.
    on_outage TEXT NOT NULL DEFAULT 'local' CHECK (on_outage IN ('local', 'open', 'closed')),
    created_at BIGINT NOT NULL,
    -- The name of a deleted namespace stays taken.
    deleted_at BIGINT,
    CONSTRAINT namespaces_name_unique UNIQUE (workspace_id, name)
);

CREATE TABLE overrides (
    id TEXT COLLATE "C" PRIMARY KEY,
    namespace_id TEXT COLLATE "C" NOT NULL REFERENCES namespaces (id) ON DELETE CASCADE,
    -- A pattern where it has a star.
    identifier TEXT COLLATE "C" NOT NULL,
    "limit" BIGINT NOT NULL CHECK ("limit" >= 0),
    duration_ms BIGINT NOT NULL,
    expires_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    CONSTRAINT overrides_identifier_unique UNIQUE (namespace_id, identifier)
);
CREATE INDEX overrides_namespace ON overrides (namespace_id, id);
