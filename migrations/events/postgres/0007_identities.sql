-- The series of an identity are found without those of all keys of its workspace. Most keys may have none.
CREATE INDEX verification_series_identity ON verification_series (workspace_id, external_id) WHERE external_id <> '';
