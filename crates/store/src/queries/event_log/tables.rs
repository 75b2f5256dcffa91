//! The tables of one kind of events, and the conditions of a log on them.
//!
//! `$1` is the workspace, `$2` the API or namespace, `$3` the outcome, `$4` and `$5` are the dimensions of a series by which the
//! log is filtered, and `$6` is the region of verifications. Each is empty if all are selected.

use foundation::model::EventKind;

use super::super::rollup_source::has_external_id_sql;

/// The tables of a kind of events, and their columns.
#[derive(Clone, Copy)]
pub struct LogTables {
    pub kind: EventKind,
    pub totals: &'static str,
    pub series: &'static str,
    /// The column of the API or namespace.
    pub resource: &'static str,
    /// The columns of the series by which the log is filtered.
    dimensions: &'static [&'static str],
    /// Selects the columns of a row from the events of the spans `$7`.
    pub events: &'static str,
    /// The order of the events of one request.
    pub order: &'static str,
}

pub const VERIFICATIONS: LogTables = LogTables {
    kind: EventKind::Verifications,
    totals: "verification_totals",
    series: "verification_series",
    resource: "api_id",
    dimensions: &["key_id", "external_id"],
    events: concat!(
        "SELECT e.time, e.request_id, s.api_id, s.key_id, s.external_id, s.outcome, s.tags,
            e.spent_credits, e.latency_us, e.region, e.reason
        FROM ",
        events_of_spans!(
            "$7",
            "verifications",
            "e.time, e.series, e.request_id, e.spent_credits, e.latency_us, e.region, e.reason"
        ),
        with_series!("verification_series")
    ),
    order: "e.request_id",
};

pub const CHECKS: LogTables = LogTables {
    kind: EventKind::Ratelimits,
    totals: "ratelimit_totals",
    series: "ratelimit_series",
    resource: "namespace_id",
    dimensions: &["identifier"],
    events: concat!(
        "SELECT e.time, e.request_id, s.namespace_id, s.identifier, s.passed, e.latency_us,
            e.override_id, e.max, e.remaining, e.reset_at, e.tokens
        FROM ",
        events_of_spans!(
            "$7",
            "ratelimits",
            "e.time, e.series, e.request_id, e.latency_us, e.override_id, e.max, e.remaining, e.reset_at, e.tokens"
        ),
        with_series!("ratelimit_series")
    ),
    order: "e.request_id, s.namespace_id, s.identifier",
};

/// Lists the namespaces of the workspace `$1` that have series, each by one look at the index: there are few of them, and
/// the index of identifiers begins with the namespace.
const NAMESPACES: &str = "WITH RECURSIVE namespaces AS (
        SELECT MIN(namespace_id) AS id FROM ratelimit_series WHERE workspace_id = $1
        UNION ALL
        SELECT (SELECT MIN(r.namespace_id) FROM ratelimit_series r
            WHERE r.workspace_id = $1 AND r.namespace_id > n.id)
        FROM namespaces n WHERE n.id IS NOT NULL
    ) SELECT id FROM namespaces WHERE id IS NOT NULL";

impl LogTables {
    /// Returns the SQL for the outcome of a row.
    pub fn outcome_sql(&self, row: &str) -> String {
        match self.kind {
            EventKind::Verifications => format!("{row}.outcome"),
            EventKind::Ratelimits => format!("CASE WHEN {row}.passed THEN 'true' ELSE 'false' END"),
        }
    }

    /// Returns the condition for a row of the totals or the series: `$1` to `$3`.
    pub fn resource_condition(&self, row: &str) -> String {
        let (resource, outcome) = (self.resource, self.outcome_sql(row));
        format!(
            "{row}.workspace_id = $1 AND ($2 = '' OR {row}.{resource} = $2) AND ($3 = '' OR {outcome} = $3)"
        )
    }

    /// Returns the condition for an event `e` and its series `s`, whatever leads to it: `$1` to `$6`.
    pub fn event_condition(&self) -> String {
        let of_dimension = |(index, value): (usize, &str)| match self.dimensions.get(index) {
            Some(column) => format!(" AND ({value} = '' OR s.{column} = {value})"),
            None => format!(" AND {value} = ''"),
        };
        let dimensions: String = ["$4", "$5"].into_iter().enumerate().map(of_dimension).collect();
        let region = match self.kind {
            EventKind::Verifications => " AND ($6 = '' OR e.region = $6)",
            EventKind::Ratelimits => " AND $6 = ''",
        };
        self.resource_condition("s") + &dimensions + region
    }

    /// Returns the condition for the series `s` of selected dimensions, which an index finds: `$1` to `$6`. A dimension that
    /// is not selected is only mentioned, because a statement must use every value. Series of earlier versions have no region, but
    /// their events may have one.
    pub fn series_condition(&self, dimensions: [&str; 2]) -> String {
        let of_dimension = |column: Option<&&str>, value: &str, is_selected: bool| match column {
            Some(&"external_id") if is_selected => has_external_id_sql(value),
            Some(&"identifier") if is_selected => {
                format!("s.namespace_id IN ({NAMESPACES}) AND s.identifier = {value}")
            }
            Some(column) if is_selected => format!("s.{column} = {value}"),
            _ => format!("{value} = ''"),
        };
        let [first, second] = dimensions.map(|text| !text.is_empty());
        let first = of_dimension(self.dimensions.first(), "$4", first);
        let second = of_dimension(self.dimensions.get(1), "$5", second);
        let region = match self.kind {
            EventKind::Verifications => "($6 = '' OR s.region IN ($6, ''))",
            EventKind::Ratelimits => "$6 = ''",
        };
        format!("{} AND {first} AND {second} AND {region}", self.resource_condition("s"))
    }
}
