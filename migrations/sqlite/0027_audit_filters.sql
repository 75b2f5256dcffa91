-- Filters of the audit log among millions of entries: by event, by actor, and by the ids and names of targets.
CREATE INDEX audit_event ON audit (workspace_id, event, at, id);
CREATE INDEX audit_actor_id ON audit (workspace_id, actor_id, at, id);
CREATE INDEX audit_actor_name ON audit (workspace_id, actor_name, at, id);

-- The ids and names of targets. A trigger adds them, so that no writer can forget it; entries are never changed or deleted.
CREATE TABLE audit_targets (
    target TEXT NOT NULL,
    entry_id TEXT NOT NULL,
    PRIMARY KEY (target, entry_id)
) WITHOUT ROWID;
CREATE TRIGGER audit_targets_insert AFTER INSERT ON audit
BEGIN
    INSERT OR IGNORE INTO audit_targets (target, entry_id)
        SELECT value ->> 'id', NEW.id FROM json_each(NEW.targets) WHERE value ->> 'id' IS NOT NULL
        UNION ALL
        SELECT value ->> 'name', NEW.id FROM json_each(NEW.targets) WHERE value ->> 'name' IS NOT NULL;
END;
INSERT OR IGNORE INTO audit_targets (target, entry_id)
    SELECT value ->> 'id', audit.id FROM audit, json_each(audit.targets) WHERE value ->> 'id' IS NOT NULL
    UNION ALL
    SELECT value ->> 'name', audit.id FROM audit, json_each(audit.targets) WHERE value ->> 'name' IS NOT NULL;
