//! Contains every query once. It is compiled for each engine by its dialect file, which provides `Connection` and the
//! macros `items!`, `texts!`, `array!`, `object!`, `now_ms!`, `locked!` and others.

macro_rules! permissions_of {
    ($links:literal) => {
        concat!(
            "(SELECT ",
            array!(object!(
                "'id', p.id, 'slug', p.slug, 'name', p.name, 'description', p.description"
            )),
            " FROM permissions p JOIN ",
            $links,
            ") AS permissions"
        )
    };
}

macro_rules! ratelimits_of {
    ($owner:literal) => {
        concat!(
            "(SELECT ",
            array!(object!(
                "'id', l.id, 'name', l.name, 'limit', l.\"limit\",
                'duration_ms', l.duration_ms, 'auto_apply', l.auto_apply, 'is_async', l.is_async"
            )),
            " FROM ratelimits l WHERE ",
            $owner,
            ") AS ratelimits"
        )
    };
}

/// Selects keys with their limits, permissions, roles and last use.
macro_rules! keys_where {
    ($condition:expr) => {
        concat!(
            "SELECT k.id, k.workspace_id, k.api_id, k.hash, k.start, k.prefix, k.byte_length,
                k.name, k.meta, k.identity_id, k.owner_id, k.environment, k.enabled, k.expires_at, k.credits,
                k.credits_version, k.refill_amount, k.refill_day, k.refilled, k.created_at,
                k.updated_at, w.enabled AS workspace_enabled, a.allowed_networks, a.home, ",
            ratelimits_of!("l.key_id = k.id"),
            ", ",
            permissions_of!("key_permissions kp ON kp.permission_id = p.id WHERE kp.key_id = k.id"),
            ", (SELECT ",
            array!("kr.role_id"),
            " FROM key_roles kr WHERE kr.key_id = k.id) AS role_ids,
                (SELECT u.last_used_at FROM key_uses u WHERE u.key_id = k.id) AS last_used_at
            FROM keys k
            JOIN apis a ON a.id = k.api_id AND a.deleted_at IS NULL
            JOIN workspaces w ON w.id = k.workspace_id
            WHERE k.deleted_at IS NULL AND ",
            $condition
        )
    };
}

/// Selects keys as lists show them: without their metadata, limits and permissions, of which a page could have many megabytes.
macro_rules! key_summaries_where {
    ($condition:expr) => {
        concat!(
            "SELECT k.id, k.api_id, k.start, k.name, k.owner_id, k.enabled AS is_enabled, k.expires_at,
                k.credits IS NOT NULL AS is_metered, k.created_at, k.updated_at,
                (SELECT u.last_used_at FROM key_uses u WHERE u.key_id = k.id) AS last_used_at
            FROM keys k
            JOIN apis a ON a.id = k.api_id AND a.deleted_at IS NULL
            WHERE k.deleted_at IS NULL AND ",
            $condition
        )
    };
}

/// Tests whether a row of `replicas` is that of a registered replica, whose reports others wait for.
macro_rules! is_registered {
    () => {
        "(silent_seen_at IS NULL OR silent_seen_at <> seen_at)"
    };
}

/// Selects entries of the audit log from the table or subquery `$from`, whose alias is `a`.
macro_rules! entries_from {
    ($from:expr) => {
        concat!(
            "SELECT a.id, a.at, a.event, a.actor_type, a.actor_id, a.actor_name, a.remote_address,
                a.user_agent, a.targets, a.correlation_id, a.before, a.after, a.undoes,
                (SELECT u.id FROM audit u WHERE u.undoes = ",
            in_default_collation!("a.id"),
            ") AS undone_by
            FROM ",
            $from
        )
    };
}

/// Lists the columns that count latencies, in the order of `LATENCY_BUCKETS_US`.
macro_rules! latency_columns {
    () => {
        "latency_le_100us, latency_le_500us, latency_le_1ms, latency_le_5ms, latency_le_25ms, \
        latency_le_100ms"
    };
}

/// Reads the columns of a rollup from an item of a list.
macro_rules! rollup_columns_of_item {
    () => {
        "CAST(item ->> 'count' AS BIGINT), CAST(item ->> 'amount' AS BIGINT),
        CAST(item ->> 'latency_us' AS BIGINT),
        CAST(item -> 'latencies' ->> 0 AS BIGINT), CAST(item -> 'latencies' ->> 1 AS BIGINT),
        CAST(item -> 'latencies' ->> 2 AS BIGINT), CAST(item -> 'latencies' ->> 3 AS BIGINT),
        CAST(item -> 'latencies' ->> 4 AS BIGINT), CAST(item -> 'latencies' ->> 5 AS BIGINT)"
    };
}

/// Adds the columns of a new rollup to those of the existing row. An amount comes from a caller. It saturates at the
/// maximum, because otherwise a rollup that cannot be written in one workspace would block those of all others.
macro_rules! add_rollup_columns {
    ($table:literal, $amount:literal) => {
        concat!(
            $amount, " = CASE WHEN ", $table, ".", $amount, " > 9223372036854775807 - excluded.", $amount,
            " THEN 9223372036854775807 ELSE ", $table, ".", $amount, " + excluded.", $amount, " END, ",
            add_rollup_columns!(@ $table, "count", "latency_us", "latency_le_100us", "latency_le_500us",
                "latency_le_1ms", "latency_le_5ms", "latency_le_25ms", "latency_le_100ms")
        )
    };
    (@ $table:literal, $first:literal $(, $column:literal)*) => {
        concat!(
            $first, " = ", $table, ".", $first, " + excluded.", $first
            $(, ", ", $column, " = ", $table, ".", $column, " + excluded.", $column)*
        )
    };
}

/// Adds the histogram of a new row to `$existing`, that of the existing row.
macro_rules! add_histogram {
    ($existing:expr) => {
        concat!(
            "histogram = (SELECT ",
            object_of!("name", "number"),
            " FROM (SELECT key AS name, CAST(SUM(CAST(value AS BIGINT)) AS BIGINT) AS number
                FROM (SELECT key, value FROM ",
            fields_of!($existing),
            " UNION ALL SELECT key, value FROM ",
            fields_of!("excluded.histogram"),
            ") AS fields GROUP BY key) AS sums)"
        )
    };
}

/// Ends a statement that selects a page of a list by a unique column. `$begin` is where the page begins, `$text` is in the column
/// `$search` of each row, and `$max` is the number of rows.
macro_rules! page_by {
    ($column:literal, $direction:literal, $begin:expr, $search:literal, $text:literal, $max:literal) => {
        concat!(
            $begin,
            " AND (",
            $text,
            " = '' OR ",
            contains!($search, $text),
            ") ORDER BY ",
            $column,
            $direction,
            " LIMIT ",
            $max
        )
    };
}

/// Selects a page with `$select` in an order, with the values `$from` (where it begins), `$text` and `$max`: `$2` to `$4`, or others.
/// There is one statement per case, because each has another range of the index.
macro_rules! page_in_order {
    ($select:ident, $page:expr, $id:literal, $name:literal, $search:literal) => {
        page_in_order!($select, $page, $id, $name, $search, "$2", "$3", "$4")
    };
    ($select:ident, $page:expr, $id:literal, $name:literal, $search:literal, $from:literal, $text:literal, $max:literal) => {
        match ($page.order, $page.start.is_empty()) {
            (PageOrder::ById, _) => {
                $select!(page_by!($id, "", concat!($id, " >= ", $from), $search, $text, $max))
            }
            (PageOrder::ByName, _) => {
                $select!(page_by!($name, "", concat!($name, " >= ", $from), $search, $text, $max))
            }
            (PageOrder::ByNameDescending, true) => {
                $select!(page_by!($name, " DESC", concat!($from, " = ''"), $search, $text, $max))
            }
            (PageOrder::ByNameDescending, false) => {
                $select!(page_by!(
                    $name,
                    " DESC",
                    concat!($name, " <= ", $from),
                    $search,
                    $text,
                    $max
                ))
            }
        }
    };
}

mod audit;
mod changes;
mod credits;
mod events;
mod form_results;
mod gateway_policies;
#[macro_use]
mod identities;
mod keys;
mod latencies;
mod members;
mod migrations;
mod outbox;
mod permission_holders;
#[macro_use]
mod ratelimits;
#[macro_use]
mod rbac;
#[macro_use]
mod reads;
mod recent;
mod region_counts;
mod regions;
mod restore;
mod rollup_latencies;
mod rollup_source;
mod rollups;
#[macro_use]
mod root_keys;
mod event_log;
mod signing_keys;
mod sizes;
mod standby;
mod top_identifiers;
mod users;
mod vault;
mod withheld;
mod workspaces;
pub mod writes;

use foundation::error::{Error, Result};
use sqlx::FromRow;
use sqlx::query::QueryAs;

use super::{Connection, account_rows, event_rows, to_index_pattern};

type Database = <Connection as sqlx::Connection>::Database;
type RowQuery<'q, Row> = QueryAs<'q, Database, Row, <Database as sqlx::Database>::Arguments>;

/// Returns every row of a query, converted to its model type.
async fn fetch_all_as<Row, Noun>(
    connection: &mut Connection,
    query: RowQuery<'_, Row>,
) -> Result<Vec<Noun>>
where
    Row: for<'r> FromRow<'r, <Database as sqlx::Database>::Row> + Send + Unpin,
    Noun: TryFrom<Row, Error: Into<Error>>,
{
    let rows = query.fetch_all(connection).await?;
    rows.into_iter().map(|row| Noun::try_from(row).map_err(Into::into)).collect()
}

/// Returns the row of a query that returns at most one, converted to its model type.
async fn fetch_optional_as<Row, Noun>(
    connection: &mut Connection,
    query: RowQuery<'_, Row>,
) -> Result<Option<Noun>>
where
    Row: for<'r> FromRow<'r, <Database as sqlx::Database>::Row> + Send + Unpin,
    Noun: TryFrom<Row, Error: Into<Error>>,
{
    let row = query.fetch_optional(connection).await?;
    row.map(|row| Noun::try_from(row).map_err(Into::into)).transpose()
}
