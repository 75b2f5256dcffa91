//! Defines the views for ClickHouse. Each is inlined where its table is named, and every read of a table inside it
//! has its own conditions: whose rows it sees, which deliveries count and how far back it goes.
//!
//! An alias hides a column of the same name in the whole SELECT, including WHERE and GROUP BY. So computed values
//! inside a view have names that no column has.

use super::super::fragment::Fragment;
use super::super::tables::{Family, Grain, PublicTable};
use super::super::{QueryContext, times};

/// Returns the `SELECT …` of a table.
pub fn build_view(table: &PublicTable, context: &QueryContext) -> Fragment {
    let oldest = times::oldest_time(
        context.now_ms,
        table.grain.retention_days(&context.retention),
        table.grain,
    );
    match (table.family, table.grain) {
        (Family::Verifications, Grain::Event) => Fragment::from_template(
            VERIFICATIONS_VIEW,
            &[&row_condition(oldest, table.family, context)],
        ),
        (Family::Ratelimits, Grain::Event) => Fragment::from_template(
            RATELIMITS_VIEW,
            &[&row_condition(oldest, table.family, context)],
        ),
        (family, grain) => {
            let series = Fragment::word(match family {
                Family::Verifications => VERIFICATION_SERIES,
                Family::Ratelimits => RATELIMIT_SERIES,
            });
            let start = Fragment::word(unit_start(grain));
            let rows = source_rows(oldest, family, grain, context);
            let rollups = Fragment::from_template(ROLLUPS, &[&start, &series, &rows]);
            let latencies = Fragment::word(super::LATENCY_COLUMNS);
            let shown = match family {
                Family::Verifications => VERIFICATION_ROLLUPS,
                Family::Ratelimits => RATELIMIT_ROLLUPS,
            };
            Fragment::from_template(shown, &[&latencies, &rollups])
        }
    }
}

/// Returns the condition for the visible rows of a table.
fn row_condition(oldest: i64, family: Family, context: &QueryContext) -> Fragment {
    let (row_scope, deliveries) = (&context.row_scope, &context.delivery_snapshot);
    let mut condition = Fragment::from_template(
        "workspace_id = {0} AND time >= {1} AND delivery <= {2}",
        &[
            &Fragment::text(&row_scope.workspace_id),
            &Fragment::digits(&[oldest]),
            &Fragment::digits(&[deliveries.last_delivery]),
        ],
    );
    if !deliveries.void_deliveries.is_empty() {
        let void = Fragment::digits(&deliveries.void_deliveries);
        condition.append(&Fragment::from_template(" AND delivery NOT IN ({0})", &[&void]));
    }
    match row_scope.resource_ids.as_deref() {
        None => {}
        Some([]) => condition.append(&Fragment::word(" AND 0")),
        Some(only) => {
            let only: Vec<_> = only.iter().map(|id| Fragment::text(id)).collect();
            let template = match family {
                Family::Verifications => " AND api_id IN ({0})",
                Family::Ratelimits => " AND namespace_id IN ({0})",
            };
            condition.append(&Fragment::from_template(template, &[&Fragment::join(", ", &only)]));
        }
    }
    condition
}

/// Returns the rows to add up: the hours of the days that are rolled up, and each later event as an hour of one.
/// Minutes are added up from events alone.
fn source_rows(oldest: i64, family: Family, grain: Grain, context: &QueryContext) -> Fragment {
    let (hours, events) = match family {
        Family::Verifications => (VERIFICATION_HOURS, VERIFICATION_EVENTS),
        Family::Ratelimits => (RATELIMIT_HOURS, RATELIMIT_EVENTS),
    };
    let all = |template, oldest| {
        Fragment::from_template(template, &[&row_condition(oldest, family, context)])
    };
    match grain {
        Grain::Event | Grain::Minute => all(events, oldest),
        Grain::Hour | Grain::Day | Grain::Month => {
            let until = context.delivery_snapshot.rolled_up_until_ms;
            let events = all(events, oldest.max(until));
            let hours = all(hours, oldest);
            Fragment::from_template(
                "{0} AND time < {1} UNION ALL {2}",
                &[&hours, &Fragment::digits(&[until]), &events],
            )
        }
    }
}

/// Returns the start of the unit that contains a row.
fn unit_start(grain: Grain) -> &'static str {
    match grain {
        Grain::Event => "moment",
        Grain::Minute => "intDiv(moment, 60000) * 60000",
        Grain::Hour => "intDiv(moment, 3600000) * 3600000",
        Grain::Day => "intDiv(moment, 86400000) * 86400000",
        Grain::Month => {
            "toInt64(toStartOfMonth(toDateTime(intDiv(moment, 1000), 'UTC'))) * 86400000"
        }
    }
}

const VERIFICATIONS_VIEW: &str = r#"SELECT request_id AS "request_id", time AS "time",
workspace_id AS "workspace_id", api_id AS "key_space_id", identity_id AS "identity_id",
external_id AS "external_id", key_id AS "key_id", region AS "region", 'api' AS "source",
'' AS "app_id", outcome AS "outcome", tags AS "tags", spent_credits AS "spent_credits",
latency_us / 1000 AS "latency" FROM verifications WHERE {0}"#;

const RATELIMITS_VIEW: &str = r#"SELECT request_id AS "request_id", time AS "time",
workspace_id AS "workspace_id", namespace_id AS "namespace_id", identifier AS "identifier",
passed AS "passed", latency_us / 1000 AS "latency", override_id AS "override_id",
max AS "limit", remaining AS "remaining", reset_at AS "reset_at", tokens AS "tokens"
FROM ratelimits WHERE {0}"#;

const VERIFICATION_SERIES: &str =
    "workspace_id, api_id, identity_id, external_id, key_id, outcome, tags";
const RATELIMIT_SERIES: &str = "workspace_id, namespace_id, identifier, did_pass";

const VERIFICATION_ROLLUPS: &str = r#"SELECT v.start AS "time", v.workspace_id AS "workspace_id",
v.api_id AS "key_space_id", v.identity_id AS "identity_id", v.external_id AS "external_id",
v.key_id AS "key_id", v.outcome AS "outcome", 'api' AS "source", '' AS "app_id", v.tags AS "tags",
v.count AS "count", v.spent AS "spent_credits", {0} FROM ({1}) AS v"#;

const RATELIMIT_ROLLUPS: &str = r#"SELECT v.start AS "time", v.workspace_id AS "workspace_id",
v.namespace_id AS "namespace_id", v.identifier AS "identifier", v.did_pass * v.count AS "passed",
v.count AS "total", v.spent AS "total_tokens", v.did_pass * v.spent AS "passed_tokens",
{0} FROM ({1}) AS v"#;

const ROLLUPS: &str = "SELECT {0} AS start, {1}, sum(n) AS count, sum(amount) AS spent,
sum(took_us) AS latency_us, sum(le_1) AS latency_le_100us, sum(le_2) AS latency_le_500us,
sum(le_3) AS latency_le_1ms, sum(le_4) AS latency_le_5ms, sum(le_5) AS latency_le_25ms,
sum(le_6) AS latency_le_100ms FROM ({2}) GROUP BY start, {1}";

macro_rules! hours {
    ($series:literal, $amount:literal, $table:literal) => {
        concat!(
            "SELECT time AS moment, ",
            $series,
            ", count AS n, ",
            $amount,
            " AS amount, latency_us AS took_us,
latency_le_100us AS le_1, latency_le_500us AS le_2, latency_le_1ms AS le_3, latency_le_5ms AS le_4,
latency_le_25ms AS le_5, latency_le_100ms AS le_6 FROM ",
            $table,
            " WHERE {0}"
        )
    };
}

macro_rules! events {
    ($series:literal, $amount:literal, $table:literal) => {
        concat!(
            "SELECT time AS moment, ",
            $series,
            ", toInt64(1) AS n, ",
            $amount,
            " AS amount, latency_us AS took_us,
toInt64(latency_us <= 100) AS le_1, toInt64(latency_us > 100 AND latency_us <= 500) AS le_2,
toInt64(latency_us > 500 AND latency_us <= 1000) AS le_3,
toInt64(latency_us > 1000 AND latency_us <= 5000) AS le_4,
toInt64(latency_us > 5000 AND latency_us <= 25000) AS le_5,
toInt64(latency_us > 25000 AND latency_us <= 100000) AS le_6 FROM ",
            $table,
            " WHERE {0}"
        )
    };
}

const VERIFICATION_HOURS: &str = hours!(
    "workspace_id, api_id, identity_id, external_id, key_id, outcome, tags",
    "spent_credits",
    "verification_hours"
);
const VERIFICATION_EVENTS: &str = events!(
    "workspace_id, api_id, identity_id, external_id, key_id, outcome, tags",
    "spent_credits",
    "verifications"
);
const RATELIMIT_HOURS: &str = hours!(
    "workspace_id, namespace_id, identifier, passed AS did_pass",
    "tokens",
    "ratelimit_hours"
);
const RATELIMIT_EVENTS: &str =
    events!("workspace_id, namespace_id, identifier, passed AS did_pass", "tokens", "ratelimits");
