-- What version 1 of the interface tells, and version 2 does not.

-- The customer's own name for the user whose key it is: the identity's, and still there when that is deleted.
ALTER TABLE keys ADD COLUMN owner_id TEXT COLLATE "C";
UPDATE keys SET owner_id = i.external_id FROM identities i WHERE i.id = keys.identity_id;
CREATE INDEX keys_owner ON keys (api_id, owner_id, id) WHERE owner_id IS NOT NULL;

-- The customer's own label.
ALTER TABLE keys ADD COLUMN environment TEXT;

-- Whether answers may be quick rather than exact, as it was asked for.
ALTER TABLE ratelimits ADD COLUMN is_async BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE overrides ADD COLUMN is_async BOOLEAN NOT NULL DEFAULT FALSE;
