-- What 0020_search_texts.sql makes, while the database is in use.
-- step
ALTER TABLE migrations ADD COLUMN IF NOT EXISTS search TEXT NOT NULL DEFAULT '';
-- search texts
