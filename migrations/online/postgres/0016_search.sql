-- What 0016_search.sql makes, while the database is in use.
-- step
ALTER TABLE apis ADD COLUMN IF NOT EXISTS search TEXT NOT NULL DEFAULT '';
-- step
ALTER TABLE namespaces ADD COLUMN IF NOT EXISTS search TEXT NOT NULL DEFAULT '';
-- step
ALTER TABLE overrides ADD COLUMN IF NOT EXISTS search TEXT NOT NULL DEFAULT '';
-- batches of apis
UPDATE apis SET search = lower(concat_ws(E'\n', id, name))
WHERE search = '' AND id > $1 AND id <= $2;
-- batches of namespaces
UPDATE namespaces SET search = lower(concat_ws(E'\n', id, name))
WHERE search = '' AND id > $1 AND id <= $2;
-- batches of overrides
UPDATE overrides SET search = lower(concat_ws(E'\n', id, identifier))
WHERE search = '' AND id > $1 AND id <= $2;
