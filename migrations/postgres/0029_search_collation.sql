-- Search texts of keys that old replicas write have every alphabet in lower case. The trigger converted the letters A to Z
-- alone, because the owner id, whose collation is C, decided the collation of the whole text. Where the collation of the
-- database is C, it still does. Texts that the trigger has written are rewritten by the program.
CREATE OR REPLACE FUNCTION write_key_search_text() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.search := lower(COALESCE(NEW.name || E'\n' || NEW.owner_id, NEW.name, NEW.owner_id, '') COLLATE "default");
    RETURN NEW;
END
$$;
