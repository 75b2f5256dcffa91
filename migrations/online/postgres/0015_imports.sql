-- What 0015_imports.sql makes, while the database is in use.
-- step
ALTER TABLE migrations ADD COLUMN IF NOT EXISTS came BIGINT NOT NULL DEFAULT 0;
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS keys_migration ON keys (migration_id) WHERE migration_id IS NOT NULL;
-- batches of migrations
UPDATE migrations SET came = (SELECT COUNT(*) FROM keys WHERE keys.migration_id = migrations.id)
WHERE came = 0 AND id > $1 AND id <= $2
    AND EXISTS (SELECT FROM keys WHERE keys.migration_id = migrations.id);
