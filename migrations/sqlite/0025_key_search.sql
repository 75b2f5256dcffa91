-- Searches of keys and identities among millions: an index finds rows by any three characters of their texts. Triggers keep
-- it, so that no writer can forget it. Rows of the index have numbers of their own, because VACUUM changes those of a table
-- whose primary key is a text. It contains no texts: a row is removed by the text that it was added with.
ALTER TABLE keys ADD COLUMN search TEXT NOT NULL DEFAULT '';

CREATE TABLE key_search_rows (
    number INTEGER PRIMARY KEY,
    key_id TEXT NOT NULL,
    CONSTRAINT key_search_rows_key_unique UNIQUE (key_id)
);
CREATE VIRTUAL TABLE key_search USING fts5 (
    search, content = '', detail = 'none', columnsize = 0, tokenize = 'trigram case_sensitive 1'
);
CREATE TRIGGER keys_search_insert AFTER INSERT ON keys WHEN NEW.deleted_at IS NULL
BEGIN
    INSERT INTO key_search_rows (key_id) VALUES (NEW.id);
    INSERT INTO key_search (rowid, search)
        SELECT number, NEW.search FROM key_search_rows WHERE key_id = NEW.id;
END;
CREATE TRIGGER keys_search_update AFTER UPDATE OF search, deleted_at ON keys
WHEN NEW.search <> OLD.search OR (NEW.deleted_at IS NULL) <> (OLD.deleted_at IS NULL)
BEGIN
    INSERT INTO key_search (key_search, rowid, search)
        SELECT 'delete', number, OLD.search FROM key_search_rows WHERE key_id = OLD.id;
    DELETE FROM key_search_rows WHERE key_id = OLD.id;
    INSERT INTO key_search_rows (key_id) SELECT NEW.id WHERE NEW.deleted_at IS NULL;
    INSERT INTO key_search (rowid, search)
        SELECT number, NEW.search FROM key_search_rows WHERE key_id = NEW.id;
END;
CREATE TRIGGER keys_search_delete AFTER DELETE ON keys
BEGIN
    INSERT INTO key_search (key_search, rowid, search)
        SELECT 'delete', number, OLD.search FROM key_search_rows WHERE key_id = OLD.id;
    DELETE FROM key_search_rows WHERE key_id = OLD.id;
END;
-- The program writes the search texts of existing keys with this migration, and so the trigger adds them.

CREATE TABLE identity_search_rows (
    number INTEGER PRIMARY KEY,
    identity_id TEXT NOT NULL,
    CONSTRAINT identity_search_rows_identity_unique UNIQUE (identity_id)
);
CREATE VIRTUAL TABLE identity_search USING fts5 (
    search, content = '', detail = 'none', columnsize = 0, tokenize = 'trigram case_sensitive 1'
);
CREATE TRIGGER identities_search_insert AFTER INSERT ON identities
BEGIN
    INSERT INTO identity_search_rows (identity_id) VALUES (NEW.id);
    INSERT INTO identity_search (rowid, search)
        SELECT number, NEW.search FROM identity_search_rows WHERE identity_id = NEW.id;
END;
CREATE TRIGGER identities_search_update AFTER UPDATE OF search ON identities WHEN NEW.search <> OLD.search
BEGIN
    INSERT INTO identity_search (identity_search, rowid, search)
        SELECT 'delete', number, OLD.search FROM identity_search_rows WHERE identity_id = OLD.id;
    INSERT INTO identity_search (rowid, search)
        SELECT number, NEW.search FROM identity_search_rows WHERE identity_id = NEW.id;
END;
CREATE TRIGGER identities_search_delete AFTER DELETE ON identities
BEGIN
    INSERT INTO identity_search (identity_search, rowid, search)
        SELECT 'delete', number, OLD.search FROM identity_search_rows WHERE identity_id = OLD.id;
    DELETE FROM identity_search_rows WHERE identity_id = OLD.id;
END;
INSERT INTO identity_search_rows (identity_id) SELECT id FROM identities ORDER BY id;
INSERT INTO identity_search (rowid, search)
    SELECT r.number, i.search FROM identity_search_rows r JOIN identities i ON i.id = r.identity_id;

-- Keys by the beginning of the key, and by state. The start is first, so that the planner, which knows nothing of the
-- contents, takes the index for nothing else.
CREATE INDEX keys_start ON keys (start, workspace_id) WHERE deleted_at IS NULL;
CREATE INDEX keys_disabled ON keys (workspace_id, created_at, id) WHERE deleted_at IS NULL AND NOT enabled;
CREATE INDEX keys_expiring ON keys (workspace_id, expires_at) WHERE deleted_at IS NULL AND expires_at IS NOT NULL;
