-- The journal of an embedded server: what has been spent from balances, and is not yet taken off them.

CREATE TABLE debits (
    id INTEGER PRIMARY KEY,
    -- A JSON object: what each key has spent, by its id.
    units TEXT NOT NULL
);
