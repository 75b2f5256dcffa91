-- The region whose replica counted, so that requests are known by region. Empty without regions, and in the rows of older versions.
ALTER TABLE verification_series ADD COLUMN region TEXT NOT NULL DEFAULT '';
