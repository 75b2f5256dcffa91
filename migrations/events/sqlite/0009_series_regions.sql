-- The region whose replica counted, so that requests are known by region. Empty without regions, and in the rows of older versions.
ALTER TABLE verification_series ADD COLUMN region TEXT NOT NULL DEFAULT '';

-- The series with tags are found without those of all keys of their workspace. Most may have none.
CREATE INDEX verification_series_tagged ON verification_series (workspace_id) WHERE tags <> '[]';
