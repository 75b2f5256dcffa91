-- The APIs of a workspace in the order of their names, which may be equal.
CREATE INDEX apis_name ON apis (workspace_id, name COLLATE "C", id) WHERE deleted_at IS NULL;
