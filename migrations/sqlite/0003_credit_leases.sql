-- What the bank has given out: the purses in Redis, and who is there to spend from them.

CREATE TABLE purses (
    key_id TEXT NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
    -- The number of the purse among those of its key.
    epoch BIGINT NOT NULL,
    -- The life of the Redis that holds it: another one after each restart and each promotion.
    life BIGINT NOT NULL,
    -- Debited from the balance for it, in all.
    granted BIGINT NOT NULL,
    -- Of it, what was spent for certain, as far as the bank has been told.
    spent BIGINT NOT NULL,
    opened_at BIGINT NOT NULL,
    -- When the bank was last asked, and by which replica.
    asked_at BIGINT NOT NULL,
    asked_by TEXT NOT NULL,
    -- Since when what it held can neither be spent nor be accounted for. NULL: it is in use.
    withheld_at BIGINT,
    PRIMARY KEY (key_id, epoch)
);
CREATE INDEX purses_in_use ON purses (asked_at) WHERE withheld_at IS NULL;
CREATE INDEX purses_withheld ON purses (withheld_at) WHERE withheld_at IS NOT NULL;

-- Which replicas have said all that they know of a purse that is withheld.
CREATE TABLE purse_accounts (
    key_id TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    replica_id TEXT NOT NULL,
    PRIMARY KEY (key_id, epoch, replica_id),
    FOREIGN KEY (key_id, epoch) REFERENCES purses (key_id, epoch) ON DELETE CASCADE
);

-- Replicas that are there, by their own word every few seconds.
CREATE TABLE replicas (
    id TEXT PRIMARY KEY,
    started_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL
);
