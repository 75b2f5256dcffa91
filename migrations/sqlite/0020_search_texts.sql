-- A search finds capitals of every alphabet. Migrations of keys get a search text, as the other lists have one. Those of
-- older rows were filled with lower(), which knows the letters A to Z alone: the program rewrites them with this migration.
ALTER TABLE migrations ADD COLUMN search TEXT NOT NULL DEFAULT '';
