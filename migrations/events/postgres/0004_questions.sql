-- What queries of callers need to be total and bounded in Postgres: a JSON reader that does not fail, and lists and
-- joins that stop at the bounds that the transaction sets (`keyward.…_left`).

CREATE FUNCTION json_or_null(value TEXT) RETURNS JSONB LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN CAST(value AS JSONB);
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- Takes an amount from what is left of a bound, or fails with the bound's own code.
CREATE FUNCTION take_from_bound(bound TEXT, amount BIGINT, code TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    rest CONSTANT BIGINT := CAST(current_setting(bound) AS BIGINT) - amount;
BEGIN
    IF rest < 0 THEN
        RAISE EXCEPTION 'a bound of the query is reached' USING ERRCODE = code;
    END IF;
    PERFORM set_config(bound, CAST(rest AS TEXT), TRUE);
END
$$;

-- True; counts a row of a join.
CREATE FUNCTION count_joined_row() RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    PERFORM keyward_events.take_from_bound('keyward.joined_rows_left', 1, 'KW002');
    RETURN TRUE;
END
$$;

-- True; counts the bytes of a value that is put into a list.
CREATE FUNCTION count_listed(item JSONB) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    PERFORM keyward_events.take_from_bound('keyward.list_bytes_left', pg_column_size(item), 'KW001');
    RETURN TRUE;
END
$$;

-- A list of different values: what counts is what is left of them. It copies the list with each value.
CREATE FUNCTION list_append(list JSONB[], item JSONB) RETURNS JSONB[] LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(list) >= CAST(current_setting('keyward.list_items_max') AS INTEGER) THEN
        RAISE EXCEPTION 'a list of the query is too long' USING ERRCODE = 'KW001';
    END IF;
    PERFORM keyward_events.count_listed(item);
    RETURN array_append(list, item);
END
$$;

CREATE FUNCTION list_finish(list JSONB[]) RETURNS JSONB LANGUAGE sql IMMUTABLE AS 'SELECT to_jsonb(list)';

CREATE AGGREGATE distinct_list(JSONB) (
    SFUNC = list_append, STYPE = JSONB[], INITCOND = '{}', FINALFUNC = list_finish
);
