-- What requests with an Idempotency-Key were answered, for a day.

CREATE TABLE kept_replies (
    root_key_id TEXT COLLATE "C" NOT NULL REFERENCES root_keys (id) ON DELETE CASCADE,
    -- A hash of the header.
    name TEXT COLLATE "C" NOT NULL,
    -- A hash of the operation and the body.
    request TEXT COLLATE "C" NOT NULL,
    -- Only who has the root key can open it: a reply may hold a new key.
    sealed TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (root_key_id, name)
);
CREATE INDEX kept_replies_at ON kept_replies (at);
