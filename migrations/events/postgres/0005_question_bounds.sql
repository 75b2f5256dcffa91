-- The bounds of callers' queries, each by a function that calls no other one: they are called for every row.

CREATE OR REPLACE FUNCTION count_joined_row() RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE
    rest CONSTANT BIGINT := CAST(current_setting('keyward.joined_rows_left') AS BIGINT) - 1;
BEGIN
    IF rest < 0 THEN
        RAISE EXCEPTION 'the joins of the query give too many rows' USING ERRCODE = 'KW002';
    END IF;
    RETURN set_config('keyward.joined_rows_left', CAST(rest AS TEXT), TRUE) IS NOT NULL;
END
$$;

CREATE OR REPLACE FUNCTION count_listed(item JSONB) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE
    rest CONSTANT BIGINT :=
        CAST(current_setting('keyward.list_bytes_left') AS BIGINT) - pg_column_size(item);
BEGIN
    IF rest < 0 THEN
        RAISE EXCEPTION 'the lists of the query are too long' USING ERRCODE = 'KW001';
    END IF;
    RETURN set_config('keyward.list_bytes_left', CAST(rest AS TEXT), TRUE) IS NOT NULL;
END
$$;

CREATE OR REPLACE FUNCTION list_append(list JSONB[], item JSONB) RETURNS JSONB[] LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(list) >= CAST(current_setting('keyward.list_items_max') AS INTEGER)
        OR NOT keyward_events.count_listed(item)
    THEN
        RAISE EXCEPTION 'a list of the query is too long' USING ERRCODE = 'KW001';
    END IF;
    RETURN array_append(list, item);
END
$$;

DROP FUNCTION take_from_bound(TEXT, BIGINT, TEXT);
