-- What 0025_key_search.sql makes, while the database is in use.
-- step
CREATE EXTENSION IF NOT EXISTS pg_trgm;
-- step
ALTER TABLE keys ADD COLUMN IF NOT EXISTS search TEXT NOT NULL DEFAULT '';
-- step
CREATE OR REPLACE FUNCTION write_key_search_text() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.search := lower(COALESCE(NEW.name || E'\n' || NEW.owner_id, NEW.name, NEW.owner_id, ''));
    RETURN NEW;
END
$$;
-- step
DROP TRIGGER IF EXISTS keys_search_text_insert ON keys;
CREATE TRIGGER keys_search_text_insert BEFORE INSERT ON keys
    FOR EACH ROW WHEN (NEW.search = '' AND COALESCE(NEW.name, NEW.owner_id) IS NOT NULL)
    EXECUTE FUNCTION write_key_search_text();
-- step
DROP TRIGGER IF EXISTS keys_search_text_update ON keys;
CREATE TRIGGER keys_search_text_update BEFORE UPDATE OF name, owner_id ON keys
    FOR EACH ROW WHEN (NEW.search = OLD.search AND (NEW.name, NEW.owner_id) IS DISTINCT FROM (OLD.name, OLD.owner_id))
    EXECUTE FUNCTION write_key_search_text();
-- search texts
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS keys_search ON keys USING gin (search gin_trgm_ops) WHERE deleted_at IS NULL;
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS identities_search ON identities USING gin (search gin_trgm_ops);
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS keys_start ON keys (workspace_id, start COLLATE "C") WHERE deleted_at IS NULL;
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS keys_disabled ON keys (workspace_id, created_at, id) WHERE deleted_at IS NULL AND NOT enabled;
-- step
CREATE INDEX CONCURRENTLY IF NOT EXISTS keys_expiring ON keys (workspace_id, expires_at) WHERE deleted_at IS NULL AND expires_at IS NOT NULL;
