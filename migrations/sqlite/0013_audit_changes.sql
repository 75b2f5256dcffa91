-- What a change made of what: the fields that differ, as JSON.
ALTER TABLE audit ADD COLUMN before TEXT;
ALTER TABLE audit ADD COLUMN after TEXT;
-- The entry that an undoing undid. What is undone is not undone again.
ALTER TABLE audit ADD COLUMN undoes TEXT;
CREATE UNIQUE INDEX audit_undoes_unique ON audit (undoes);
