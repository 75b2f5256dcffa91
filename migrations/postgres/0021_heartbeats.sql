-- The replay position of a standby, in the data itself: the last heartbeat of a replica that a read there contains.

-- A replica numbers its heartbeats from its start, and 0 is none: a replica of a version before this.
ALTER TABLE replicas ADD COLUMN heartbeat BIGINT NOT NULL DEFAULT 0;
