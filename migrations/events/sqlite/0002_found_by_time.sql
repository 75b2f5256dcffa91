-- Events are found by when they happened: the id of a request tells it, and sums tell when a series had any. Indexes
-- of names that come in no order cost several times as much as the event itself.

DROP INDEX verifications_series;
DROP INDEX verifications_request;
CREATE INDEX verifications_time ON verifications (time);

DROP INDEX ratelimits_series;
DROP INDEX ratelimits_request;
CREATE INDEX ratelimits_time ON ratelimits (time);
