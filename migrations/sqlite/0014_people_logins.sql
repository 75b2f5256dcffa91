-- Single sign-on: whom an issuer of OpenID Connect means. A person is found by what the issuer calls them, never a second
-- time by an e-mail. Who comes in by it alone has no password: people.password is '' then, which is no hash.

CREATE TABLE people_logins (
    -- As the issuer calls itself.
    issuer TEXT NOT NULL,
    -- Its `sub`.
    subject TEXT NOT NULL,
    person_id TEXT NOT NULL REFERENCES people (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    CONSTRAINT people_logins_unique UNIQUE (issuer, subject),
    CONSTRAINT people_logins_person PRIMARY KEY (person_id, issuer)
);
