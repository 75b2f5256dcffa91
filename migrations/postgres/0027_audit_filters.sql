-- Filters of the audit log among millions of entries: by event, by actor, and by the ids and names of targets.
CREATE INDEX audit_event ON audit (workspace_id, event, at, id);
CREATE INDEX audit_actor_id ON audit (workspace_id, actor_id, at, id);
CREATE INDEX audit_actor_name ON audit (workspace_id, actor_name, at, id);
CREATE INDEX audit_targets ON audit USING gin (CAST(targets AS jsonb) jsonb_path_ops);
