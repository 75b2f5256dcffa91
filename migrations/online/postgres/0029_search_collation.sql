-- What 0029_search_collation.sql makes, while the database is in use.
-- step
CREATE OR REPLACE FUNCTION write_key_search_text() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.search := lower(COALESCE(NEW.name || E'\n' || NEW.owner_id, NEW.name, NEW.owner_id, '') COLLATE "default");
    RETURN NEW;
END
$$;
-- search texts
