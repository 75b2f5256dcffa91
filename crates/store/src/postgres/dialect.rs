//! Defines the SQL that differs from SQLite.

/// Returns the items of a JSON list as rows with one column, `item`.
macro_rules! items {
    ($list:literal) => {
        concat!(
            "(SELECT value AS item FROM jsonb_array_elements(CAST(",
            $list,
            " AS jsonb))) AS items"
        )
    };
}
/// Returns the strings of a JSON list as rows with one column, `item`.
macro_rules! texts {
    ($list:literal) => {
        concat!(
            "(SELECT value AS item FROM jsonb_array_elements_text(CAST(",
            $list,
            " AS jsonb))) AS texts"
        )
    };
}
/// Returns the strings of a JSON list in a column of a table on its left as rows with one column, `value`.
macro_rules! texts_of {
    ($list:literal) => {
        concat!("jsonb_array_elements_text(CAST(", $list, " AS jsonb))")
    };
}
/// Tests whether a text is one of a JSON list. The list becomes an array first, so that the rows are found by an index even
/// while the planner has no statistics.
macro_rules! is_one_of {
    ($list:literal) => {
        concat!("= ANY(ARRAY(SELECT jsonb_array_elements_text(CAST(", $list, " AS jsonb))))")
    };
}
/// Tests whether a text is that of this field in one of the items of a JSON list, likewise.
macro_rules! is_in_items {
    ($list:literal, $field:literal) => {
        concat!(
            "= ANY(ARRAY(SELECT jsonb_array_elements(CAST(",
            $list,
            " AS jsonb)) ->> '",
            $field,
            "'))"
        )
    };
}
/// Tests whether a flag is not set, in the form of the index on such rows.
macro_rules! is_pending {
    ($flag:literal) => {
        concat!("NOT ", $flag)
    };
}
/// Aggregates the values of an expression into one JSON list.
macro_rules! array {
    ($value:expr) => {
        concat!("CAST(COALESCE(jsonb_agg(", $value, "), '[]') AS TEXT)")
    };
}
macro_rules! object {
    ($fields:literal) => {
        concat!("jsonb_build_object(", $fields, ")")
    };
}
/// Returns the fields of a JSON object as rows with the columns `key` and `value`.
macro_rules! fields_of {
    ($object:expr) => {
        concat!("jsonb_each_text(", $object, ")")
    };
}
/// Aggregates names and values into one JSON object.
macro_rules! object_of {
    ($name:literal, $value:literal) => {
        concat!("COALESCE(jsonb_object_agg(", $name, ", ", $value, "), '{}')")
    };
}
/// Returns the time of the database's clock in Unix milliseconds.
macro_rules! now_ms {
    () => {
        "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
    };
}
/// Returns a transaction number: every transaction with a smaller one has ended.
macro_rules! transactions_ended_below {
    () => {
        "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT)"
    };
}
/// Returns the number of the next transaction. The end of a snapshot (`xmax`) is the number after the last
/// transaction that has ended. Its age counts the transactions that have begun since, provided that the current
/// transaction has no number itself.
macro_rules! next_transaction {
    () => {
        "(CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS TEXT) AS BIGINT)
            + age(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS xid)))"
    };
}
/// Like [`transactions_ended_below`], but only for transactions that have written to the change log, which hold a
/// lock on it until they end. It is slower, and its result dates from a moment before the next statement of the
/// caller.
macro_rules! writers_ended_below {
    () => {
        concat!(
            "(SELECT LEAST(MIN(t.next), MIN(t.next - x.behind))
        FROM (SELECT ",
            next_transaction!(),
            " AS next) AS t
        LEFT JOIN (
            SELECT CAST(CAST(own.transactionid AS TEXT) AS BIGINT) AS number
            FROM pg_locks log
            JOIN pg_locks own ON own.virtualtransaction = log.virtualtransaction
                AND own.locktype = 'transactionid' AND own.mode = 'ExclusiveLock' AND own.granted
            WHERE log.locktype = 'relation' AND log.relation = CAST('changes' AS regclass)
                AND log.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND log.mode <> 'AccessShareLock' AND log.granted
        ) AS w ON TRUE
        LEFT JOIN LATERAL (
            -- Locks contain the last 32 bits of a number. A transaction that is ahead began after this statement.
            SELECT (t.next - w.number) & 4294967295 AS behind
        ) AS x ON x.behind < 2147483648)"
        )
    };
}
/// Returns the last assigned position of the change log. Its row may not be committed.
macro_rules! last_position {
    () => {
        "(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM changes_seq_seq)"
    };
}
/// Returns whether a text contains another one.
macro_rules! contains {
    ($text:literal, $part:literal) => {
        concat!("strpos(", $text, ", ", $part, ") > 0")
    };
}
/// Returns the rows of a table, as `e`, that a condition selects for each `item` of a JSON list. The rows of each item are
/// looked up by themselves: for several, the planner, which knows nothing of the list, would read the whole table.
macro_rules! rows_of_items {
    ($list:literal, $table:literal, $columns:literal, $condition:literal) => {
        concat!(
            items!($list),
            " CROSS JOIN LATERAL (SELECT ",
            $columns,
            " FROM ",
            $table,
            " e WHERE ",
            $condition,
            " OFFSET 0) AS e"
        )
    };
}
/// Returns batches, as `b`, and the events of each, as `e`. The events of each batch are looked up by themselves: the planner, which
/// does not know how few batches are not rolled up, would read all events.
macro_rules! events_of_batches {
    ($table:literal, $columns:literal) => {
        concat!(
            "batches b CROSS JOIN LATERAL (SELECT ",
            $columns,
            " FROM ",
            $table,
            " e WHERE e.batch = b.id AND e.time BETWEEN b.first_at AND b.last_at OFFSET 0) AS e"
        )
    };
}
/// Returns the events, as `e`, of each span of time of a JSON list. Its bounds are decoded once, and not for each event that an index
/// of blocks finds beside those of the span.
macro_rules! events_of_spans {
    ($list:literal, $table:literal, $columns:literal) => {
        concat!(
            "(SELECT CAST(value ->> 0 AS BIGINT) AS from_time, CAST(value ->> 1 AS BIGINT) AS until_time
            FROM jsonb_array_elements(CAST(",
            $list,
            " AS jsonb)) OFFSET 0) AS spans CROSS JOIN LATERAL (SELECT ",
            $columns,
            " FROM ",
            $table,
            " e WHERE e.time >= spans.from_time AND e.time < spans.until_time OFFSET 0) AS e"
        )
    };
}
/// Joins the series of events `e`, as `s`. Each is looked up by itself: the planner expects so few events that it would compare each
/// with all series.
macro_rules! with_series {
    ($table:literal) => {
        concat!(
            " CROSS JOIN LATERAL (SELECT * FROM ",
            $table,
            " s WHERE s.id = e.series OFFSET 0) AS s"
        )
    };
}
/// Compares a text with one of the database's collation, so that the index of that is found.
macro_rules! in_default_collation {
    ($column:literal) => {
        concat!($column, " COLLATE \"default\"")
    };
}
/// Selects from the audit entries of the workspace `$1` with a target of this id or name, as `a`. The values are in the form
/// of the index. They are selected before they are sorted: the planner would rather read all entries in their order.
macro_rules! entries_of_target {
    ($target:literal) => {
        concat!(
            "(SELECT * FROM audit t WHERE t.workspace_id = $1
                AND (CAST(t.targets AS jsonb) @> jsonb_build_array(jsonb_build_object('id', CAST(",
            $target,
            " AS TEXT))) OR CAST(t.targets AS jsonb) @> jsonb_build_array(jsonb_build_object('name', CAST(",
            $target,
            " AS TEXT)))) OFFSET 0) AS a WHERE TRUE"
        )
    };
}
/// Selects the ids of keys of the workspace `$1`, up to `$3`, whose search text matches `$2`, an index pattern.
macro_rules! keys_by_text {
    () => {
        "SELECT id FROM keys WHERE workspace_id = $1 AND deleted_at IS NULL AND search LIKE $2 LIMIT $3"
    };
}
/// Selects the ids of identities of the workspace `$1`, up to `$3`, whose search text matches `$2`, an index pattern.
macro_rules! identities_by_text {
    () => {
        "SELECT id FROM identities WHERE workspace_id = $1 AND search LIKE $2 LIMIT $3"
    };
}
/// Selects from the keys whose hash is one of the JSON list `$1`, as `found`. Each is looked up by itself: the planner, which
/// knows nothing of a table that has just grown, would read all of it for several hashes, but not for one.
macro_rules! from_keys_by_hash {
    () => {
        concat!(
            "FROM ",
            texts!("$1"),
            " CROSS JOIN LATERAL (",
            keys_where!("k.hash = item"),
            " OFFSET 0) AS found"
        )
    };
}
/// Names a column that is no condition for an index. The planner knows by its statistics.
macro_rules! unindexed {
    ($column:literal) => {
        $column
    };
}
/// Compares a text by its bytes, as the index of it does.
macro_rules! by_bytes {
    ($column:literal) => {
        concat!($column, " COLLATE \"C\"")
    };
}
/// Prevents deletion of the selected rows until the transaction ends.
macro_rules! locked_for_key_share {
    ($select:expr) => {
        concat!($select, " FOR KEY SHARE")
    };
}
/// Locks the selected rows until the transaction ends.
macro_rules! locked {
    ($select:expr) => {
        concat!($select, " FOR UPDATE")
    };
}
/// Locks the selected rows until the transaction ends. Other transactions may still insert rows that refer to them.
macro_rules! locked_for_no_key_update {
    ($select:expr) => {
        concat!($select, " FOR NO KEY UPDATE")
    };
}
/// Locks the selected rows until the transaction ends, and skips rows that another transaction has locked.
macro_rules! locked_skipping_locked {
    ($select:expr) => {
        concat!($select, " FOR UPDATE SKIP LOCKED")
    };
}
/// Joins, as `c`, the changes in a range, both ends included. The limit makes the planner, which does not know the range,
/// read no more than that from the index.
macro_rules! changes_between {
    ($first:literal, $last:literal, $limit:literal) => {
        concat!(
            " CROSS JOIN LATERAL (SELECT * FROM changes WHERE seq BETWEEN ",
            $first,
            " AND ",
            $last,
            " ORDER BY seq LIMIT ",
            $limit,
            ") AS c"
        )
    };
}
/// Returns a number higher than that of any lease, and of any replica that was counted out.
macro_rules! next_number {
    () => {
        "nextval('lease_numbers')"
    };
}

/// Decodes a hexadecimal text into bytes.
macro_rules! hex_bytes {
    ($text:literal) => {
        concat!("decode(", $text, ", 'hex')")
    };
}
/// Converts the texts `true` and `false` to a boolean.
macro_rules! flag {
    ($text:literal) => {
        concat!("CAST(", $text, " AS BOOLEAN)")
    };
}
/// Returns the start of the month (UTC) of a time, both in Unix milliseconds.
macro_rules! month_of {
    ($time:literal) => {
        concat!(
            "CAST(EXTRACT(EPOCH FROM date_trunc('month', to_timestamp(",
            $time,
            " / 1000.0) AT TIME ZONE 'UTC')) * 1000 AS BIGINT)"
        )
    };
}
/// Returns balances of accounts as rows, `items`, whose columns are the parameters of `account_rows::bind_balances`.
macro_rules! balance_items {
    () => {
        "UNNEST(CAST($1 AS TEXT[]), CAST($2 AS BIGINT[]), CAST($3 AS BIGINT[]), CAST($4 AS BIGINT[]))
            AS items (key_id, balance, version, refilled)"
    };
}
/// Returns leases as rows, `items`, whose columns are the parameters of `account_rows::bind_leases`.
macro_rules! lease_items {
    () => {
        "UNNEST(CAST($1 AS TEXT[]), CAST($2 AS BIGINT[]), CAST($3 AS BIGINT[]), CAST($4 AS BIGINT[]),
            CAST($5 AS BIGINT[]), CAST($6 AS BIGINT[]), CAST($7 AS BIGINT[]), CAST($8 AS TEXT[]),
            CAST($9 AS BIGINT[]), CAST($10 AS BOOLEAN[]), CAST($11 AS TEXT[]))
            AS items (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by,
                withheld_at, closed, region)"
    };
}
