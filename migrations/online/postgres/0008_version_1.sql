-- What 0008_version_1.sql makes, while the database is in use.
-- step
ALTER TABLE keys
    ADD COLUMN IF NOT EXISTS owner_id TEXT COLLATE "C",
    ADD COLUMN IF NOT EXISTS environment TEXT;
-- step
ALTER TABLE ratelimits ADD COLUMN IF NOT EXISTS is_async BOOLEAN NOT NULL DEFAULT FALSE;
-- step
ALTER TABLE overrides ADD COLUMN IF NOT EXISTS is_async BOOLEAN NOT NULL DEFAULT FALSE;
-- batches of keys
UPDATE keys SET owner_id = i.external_id FROM identities i
WHERE i.id = keys.identity_id AND keys.owner_id IS NULL AND keys.id > $1 AND keys.id <= $2;
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS keys_owner ON keys (api_id, owner_id, id) WHERE owner_id IS NOT NULL;
