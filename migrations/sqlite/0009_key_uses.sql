-- When keys were last used, as replicas note it now and then. Not a column of keys, which would be written anew with
-- every use; and without a reference to them, which would hold every key that is in use.
CREATE TABLE key_uses (
    key_id TEXT PRIMARY KEY,
    last_used_at BIGINT NOT NULL
);
