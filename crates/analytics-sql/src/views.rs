//! Defines the views behind the public tables. Each shows only what its caller may see.
//!
//! The workspace is a condition inside the view, so no query can bypass it. Rollups are those in the database, and
//! the events that are not rolled up yet. ClickHouse has its own views: its rows contain the dimensions of their
//! series, and the delivery that wrote them ([`clickhouse`]).

pub mod clickhouse;

use super::fragment::Fragment;
use super::tables::{Family, Grain, PublicTable};
use super::types::SqlDialect;

/// Defines whose events a query sees.
#[derive(Debug, Clone)]
pub struct RowScope {
    pub workspace_id: String,
    /// The ids of the APIs or namespaces. `None`: all.
    pub resource_ids: Option<Vec<String>>,
}

/// Returns the `SELECT …` of a table, for Postgres or SQLite.
pub fn build_view(table: &PublicTable, engine: SqlDialect, row_scope: &RowScope) -> Fragment {
    let mut condition = Fragment::from_template(
        "s.workspace_id = {0}",
        &[&Fragment::text(&row_scope.workspace_id)],
    );
    if let Some(only) = &row_scope.resource_ids {
        let list = Fragment::text(&serde_json::json!(only).to_string());
        let column = Fragment::word(match table.family {
            Family::Verifications => "s.api_id",
            Family::Ratelimits => "s.namespace_id",
        });
        let template = pick_dialect(
            engine,
            " AND {0} IN (SELECT jsonb_array_elements_text(CAST({1} AS jsonb)))",
            " AND {0} IN (SELECT value FROM json_each({1}))",
        );
        condition.append(&Fragment::from_template(template, &[&column, &list]));
    }
    let tags = Fragment::word(pick_dialect(engine, "CAST(s.tags AS jsonb)", "s.tags"));
    match (table.family, table.grain) {
        (Family::Verifications, Grain::Event) => {
            Fragment::from_template(VERIFICATIONS_VIEW, &[&tags, &condition])
        }
        (Family::Ratelimits, Grain::Event) => {
            Fragment::from_template(RATELIMITS_VIEW, &[&condition])
        }
        (Family::Verifications, grain) => {
            let rollups = build_rollups(table.family, grain, engine);
            Fragment::from_template(VERIFICATION_ROLLUPS, &[&tags, &rollups, &condition])
        }
        (Family::Ratelimits, grain) => {
            let rollups = build_rollups(table.family, grain, engine);
            Fragment::from_template(RATELIMIT_ROLLUPS, &[&rollups, &condition])
        }
    }
}

fn pick_dialect(engine: SqlDialect, postgres: &'static str, sqlite: &'static str) -> &'static str {
    if engine == SqlDialect::Postgres { postgres } else { sqlite }
}

const VERIFICATIONS_VIEW: &str = r#"SELECT v.request_id AS "request_id", v.time AS "time",
s.workspace_id AS "workspace_id", s.api_id AS "key_space_id", s.identity_id AS "identity_id",
s.external_id AS "external_id", s.key_id AS "key_id", v.region AS "region",
CAST('api' AS TEXT) AS "source", CAST('' AS TEXT) AS "app_id", s.outcome AS "outcome",
{0} AS "tags", v.spent_credits AS "spent_credits",
CAST(v.latency_us AS DOUBLE PRECISION) / 1000 AS "latency"
FROM verifications v JOIN verification_series s ON s.id = v.series WHERE {1}"#;

const RATELIMITS_VIEW: &str = r#"SELECT v.request_id AS "request_id", v.time AS "time",
s.workspace_id AS "workspace_id", s.namespace_id AS "namespace_id", s.identifier AS "identifier",
s.passed AS "passed", CAST(v.latency_us AS DOUBLE PRECISION) / 1000 AS "latency",
v.override_id AS "override_id", v.max AS "limit", v.remaining AS "remaining",
v.reset_at AS "reset_at", v.tokens AS "tokens"
FROM ratelimits v JOIN ratelimit_series s ON s.id = v.series WHERE {0}"#;

/// Returns the end of the bucket that contains a percentile, or beyond the last bucket the mean of the rest.
macro_rules! latency_at {
    ($percent:literal) => {
        concat!(
            "CASE WHEN 100 * v.latency_le_100us >= ", $percent, " * v.count THEN 0.1",
            " WHEN 100 * (v.latency_le_100us + v.latency_le_500us) >= ", $percent, " * v.count THEN 0.5",
            " WHEN 100 * (v.latency_le_100us + v.latency_le_500us + v.latency_le_1ms) >= ", $percent,
            " * v.count THEN 1.0",
            " WHEN 100 * (v.latency_le_100us + v.latency_le_500us + v.latency_le_1ms + v.latency_le_5ms) >= ",
            $percent, " * v.count THEN 5.0",
            " WHEN 100 * (v.latency_le_100us + v.latency_le_500us + v.latency_le_1ms + v.latency_le_5ms",
            " + v.latency_le_25ms) >= ", $percent, " * v.count THEN 25.0",
            " WHEN 100 * (v.latency_le_100us + v.latency_le_500us + v.latency_le_1ms + v.latency_le_5ms",
            " + v.latency_le_25ms + v.latency_le_100ms) >= ", $percent, " * v.count THEN 100.0",
            " ELSE CAST(v.latency_us AS DOUBLE PRECISION) / 1000 / (v.count - v.latency_le_100us",
            " - v.latency_le_500us - v.latency_le_1ms - v.latency_le_5ms - v.latency_le_25ms",
            " - v.latency_le_100ms) END"
        )
    };
}

macro_rules! latencies {
    () => {
        concat!(
            "CAST(v.latency_us AS DOUBLE PRECISION) / v.count / 1000 AS \"latency_avg\", CAST(",
            latency_at!("75"),
            " AS DOUBLE PRECISION) AS \"latency_p75\", CAST(",
            latency_at!("99"),
            " AS DOUBLE PRECISION) AS \"latency_p99\""
        )
    };
}

/// The latency columns of rollups that are named `v`.
const LATENCY_COLUMNS: &str = latencies!();

const VERIFICATION_ROLLUPS: &str = concat!(
    r#"SELECT v.time AS "time", s.workspace_id AS "workspace_id", s.api_id AS "key_space_id",
s.identity_id AS "identity_id", s.external_id AS "external_id", s.key_id AS "key_id",
s.outcome AS "outcome", CAST('api' AS TEXT) AS "source", CAST('' AS TEXT) AS "app_id",
{0} AS "tags", v.count AS "count", v.spent AS "spent_credits", "#,
    latencies!(),
    " FROM ({1}) AS v JOIN verification_series s ON s.id = v.series WHERE {2}"
);

const RATELIMIT_ROLLUPS: &str = concat!(
    r#"SELECT v.time AS "time", s.workspace_id AS "workspace_id", s.namespace_id AS "namespace_id",
s.identifier AS "identifier", CASE WHEN s.passed THEN v.count ELSE 0 END AS "passed",
v.count AS "total", v.spent AS "total_tokens",
CASE WHEN s.passed THEN v.spent ELSE 0 END AS "passed_tokens", "#,
    latencies!(),
    " FROM ({0}) AS v JOIN ratelimit_series s ON s.id = v.series WHERE {1}"
);

/// Returns the rollups in the database, and each event that is in none of them yet as a rollup of one.
fn build_rollups(family: Family, grain: Grain, engine: SqlDialect) -> Fragment {
    let words = |verifications, ratelimits| match family {
        Family::Verifications => Fragment::word(verifications),
        Family::Ratelimits => Fragment::word(ratelimits),
    };
    let stored = match grain {
        Grain::Event => words("verifications", "ratelimits"),
        Grain::Minute => words("verifications_per_minute", "ratelimits_per_minute"),
        Grain::Hour => words("verifications_per_hour", "ratelimits_per_hour"),
        Grain::Day => words("verifications_per_day", "ratelimits_per_day"),
        Grain::Month => words("verifications_per_month", "ratelimits_per_month"),
    };
    let start = Fragment::word(match grain {
        Grain::Event => "v.time",
        Grain::Minute => "v.time / 60000 * 60000",
        Grain::Hour => "v.time / 3600000 * 3600000",
        Grain::Day => "v.time / 86400000 * 86400000",
        Grain::Month => pick_dialect(
            engine,
            // Postgres computes this before it filters out the rows of others.
            "CAST(EXTRACT(EPOCH FROM date_trunc('month', to_timestamp(LEAST(GREATEST(v.time, -62135596800000), 253402300799999) / 1000) AT TIME ZONE 'UTC')) AS BIGINT) * 1000",
            "unixepoch(v.time / 1000, 'unixepoch', 'start of month') * 1000",
        ),
    });
    let is_open = Fragment::word(pick_dialect(engine, "NOT b.summed", "b.summed = 0"));
    let spent = words("spent_credits", "tokens");
    Fragment::from_template(
        ROLLUPS,
        &[&stored, &start, &is_open, &spent, &words("verifications", "ratelimits")],
    )
}

const ROLLUPS: &str =
    "SELECT series, time, count, {3} AS spent, latency_us, latency_le_100us, latency_le_500us,
latency_le_1ms, latency_le_5ms, latency_le_25ms, latency_le_100ms FROM {0}
UNION ALL SELECT v.series, {1}, 1, v.{3}, v.latency_us,
CASE WHEN v.latency_us <= 100 THEN 1 ELSE 0 END,
CASE WHEN v.latency_us > 100 AND v.latency_us <= 500 THEN 1 ELSE 0 END,
CASE WHEN v.latency_us > 500 AND v.latency_us <= 1000 THEN 1 ELSE 0 END,
CASE WHEN v.latency_us > 1000 AND v.latency_us <= 5000 THEN 1 ELSE 0 END,
CASE WHEN v.latency_us > 5000 AND v.latency_us <= 25000 THEN 1 ELSE 0 END,
CASE WHEN v.latency_us > 25000 AND v.latency_us <= 100000 THEN 1 ELSE 0 END
FROM batches b JOIN {4} v ON v.batch = b.id AND v.time BETWEEN b.first_at AND b.last_at WHERE {2}";
