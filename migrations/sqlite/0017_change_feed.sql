-- How replicas learn of changes, so that a writer that cannot announce a change knows whom it must wait for.

-- The announcements that a replica relies on while it cannot read the change log: the era of the feed in Redis. Empty:
-- it relies on none. NULL: a replica of a version before this.
ALTER TABLE replicas ADD COLUMN feed TEXT;
-- How long it relies on them without the database.
ALTER TABLE replicas ADD COLUMN grace_ms BIGINT;

-- Which replicas have read an intent in the change log: they hold what it names as unknown until its result is known.
CREATE TABLE change_acks (
    intent BIGINT NOT NULL,
    replica_id TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (intent, replica_id)
);
