-- What a search looks through, as other lists have it: the server writes it in lower case, of every alphabet.
ALTER TABLE apis ADD COLUMN search TEXT NOT NULL DEFAULT '';
UPDATE apis SET search = lower(id || char(10) || name);
ALTER TABLE namespaces ADD COLUMN search TEXT NOT NULL DEFAULT '';
UPDATE namespaces SET search = lower(id || char(10) || name);
ALTER TABLE overrides ADD COLUMN search TEXT NOT NULL DEFAULT '';
UPDATE overrides SET search = lower(id || char(10) || identifier);
