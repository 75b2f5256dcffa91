-- Keys as people look through them: the latest first, of a workspace or of one API. Nothing that a verification or a
-- change of a balance writes is in these.
CREATE INDEX keys_latest ON keys (workspace_id, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX keys_api_latest ON keys (api_id, created_at, id) WHERE deleted_at IS NULL;
