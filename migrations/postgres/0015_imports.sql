-- How many keys each migration has taken in: those that have become our own since do not point to it any more. Those that
-- still do are counted too, to tell how many wait to be shown.

ALTER TABLE migrations ADD COLUMN came BIGINT NOT NULL DEFAULT 0;
UPDATE migrations SET came = (SELECT COUNT(*) FROM keys WHERE keys.migration_id = migrations.id);
CREATE INDEX keys_migration ON keys (migration_id) WHERE migration_id IS NOT NULL;
