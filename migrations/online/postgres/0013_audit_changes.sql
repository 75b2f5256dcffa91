-- What 0013_audit_changes.sql makes, while the database is in use.
-- step
ALTER TABLE audit
    ADD COLUMN IF NOT EXISTS before TEXT,
    ADD COLUMN IF NOT EXISTS after TEXT,
    ADD COLUMN IF NOT EXISTS undoes TEXT;
-- step
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS audit_undoes_unique ON audit (undoes);
-- step
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_constraint WHERE conrelid = 'audit'::regclass AND conname = 'audit_undoes_unique'
    ) THEN
        ALTER TABLE audit ADD CONSTRAINT audit_undoes_unique UNIQUE USING INDEX audit_undoes_unique;
    END IF;
END $$;
