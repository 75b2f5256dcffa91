-- Searches of keys and identities among millions: an index finds rows by any three characters of their texts. Old replicas
-- do not write the search text of a key, so a trigger does for them; the next version drops it.
CREATE EXTENSION IF NOT EXISTS pg_trgm;

ALTER TABLE keys ADD COLUMN search TEXT NOT NULL DEFAULT '';

CREATE FUNCTION write_key_search_text() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.search := lower(COALESCE(NEW.name || E'\n' || NEW.owner_id, NEW.name, NEW.owner_id, ''));
    RETURN NEW;
END
$$;
CREATE TRIGGER keys_search_text_insert BEFORE INSERT ON keys
    FOR EACH ROW WHEN (NEW.search = '' AND COALESCE(NEW.name, NEW.owner_id) IS NOT NULL)
    EXECUTE FUNCTION write_key_search_text();
CREATE TRIGGER keys_search_text_update BEFORE UPDATE OF name, owner_id ON keys
    FOR EACH ROW WHEN (NEW.search = OLD.search AND (NEW.name, NEW.owner_id) IS DISTINCT FROM (OLD.name, OLD.owner_id))
    EXECUTE FUNCTION write_key_search_text();

CREATE INDEX keys_search ON keys USING gin (search gin_trgm_ops) WHERE deleted_at IS NULL;
CREATE INDEX identities_search ON identities USING gin (search gin_trgm_ops);

-- Keys by the beginning of the key, and by state. Nothing that a verification or a change of a
-- balance writes is in these.
CREATE INDEX keys_start ON keys (workspace_id, start COLLATE "C") WHERE deleted_at IS NULL;
CREATE INDEX keys_disabled ON keys (workspace_id, created_at, id) WHERE deleted_at IS NULL AND NOT enabled;
CREATE INDEX keys_expiring ON keys (workspace_id, expires_at) WHERE deleted_at IS NULL AND expires_at IS NOT NULL;
