-- The keys that sign assertions for upstreams; the private keys are sealed with the master key.

CREATE TABLE signing_keys (
    id TEXT PRIMARY KEY,
    -- 'current' signs, 'next' is published before it signs. NULL: retired.
    slot TEXT,
    public_key TEXT NOT NULL,
    -- The master key, by what tells it from others.
    master_id TEXT NOT NULL,
    sealed TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    activated_at BIGINT,
    retired_at BIGINT,
    -- However many replicas create keys at once, there is one of each.
    CONSTRAINT signing_keys_slot_unique UNIQUE (slot)
);
