-- Regions that share limits and credits, each with a Redis of its own.

-- `position` 0 is the first region: the home of what has none.
CREATE TABLE regions (
    name TEXT PRIMARY KEY,
    position BIGINT NOT NULL UNIQUE
);

-- The region whose Redis counts the limits of an API's keys, of an identity, or of a namespace.
ALTER TABLE apis ADD COLUMN home TEXT;
ALTER TABLE identities ADD COLUMN home TEXT;
ALTER TABLE namespaces ADD COLUMN home TEXT;

-- The region whose Redis holds the lease, and the region of the replica. Empty: the first region.
ALTER TABLE purses ADD COLUMN region TEXT NOT NULL DEFAULT '';
ALTER TABLE replicas ADD COLUMN region TEXT NOT NULL DEFAULT '';
