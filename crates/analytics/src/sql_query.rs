//! Runs SQL queries about events, within the scope and the quota of the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use analytics_sql::{Family, LISTS_MAX_BYTES, QueryContext, RESULT_MAX_BYTES, RowScope};
use foundation::clock::{HOUR_MS, Stopwatch, Timestamp};
use foundation::error::{Error, QueryErrorKind, Result};
use foundation::id::WorkspaceId;
use foundation::model::EventKind;
use serde_json::value::RawValue;
use store::analytics_query::QueryLimits;
use tokio::sync::Semaphore;

use crate::Analytics;

/// The maximum number of rows in a result.
const ROWS_MAX: u64 = 10_000;
/// The maximum time of a query, including the wait for a connection.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(20);
/// The limits of one query. The disk reserve is a setting.
pub const QUERY_LIMITS: QueryLimits = QueryLimits {
    timeout: Duration::from_secs(10),
    result_max_bytes: RESULT_MAX_BYTES,
    memory_max_bytes: 512 * 1024 * 1024,
    disk_reserve_bytes: 0,
    list_items_max: 10_000,
    lists_max_bytes: LISTS_MAX_BYTES,
    joined_rows_max: 1_000_000,
};

/// The events that a query may read.
#[derive(Debug)]
pub struct QueryScope {
    pub kind: EventKind,
    pub workspace_id: WorkspaceId,
    /// The APIs, for verifications, or the namespaces, for limit checks. `None`: all of the workspace.
    pub resource_ids: Option<Vec<String>>,
}

/// Runs a query within a scope, and returns its rows as JSON objects.
pub async fn run(
    analytics: &Analytics,
    scope: QueryScope,
    text: &str,
) -> Result<Vec<Box<RawValue>>> {
    let QueryScope { kind, workspace_id, resource_ids } = scope;
    let now = analytics.clock.now();
    let context = QueryContext {
        family: match kind {
            EventKind::Verifications => Family::Verifications,
            EventKind::Ratelimits => Family::Ratelimits,
        },
        row_scope: RowScope { workspace_id: workspace_id.as_str().to_owned(), resource_ids },
        now_ms: now.0,
        retention: analytics.stored_retention(kind),
        rows_max: ROWS_MAX,
        nested_rows_max: None,
        delivery_snapshot: analytics.event_store.delivery_snapshot().await?,
    };
    let hour = analytics.query_quotas.admit(&workspace_id, now)?;
    let (text, engine) = (text.to_owned(), analytics.event_store.sql_dialect());
    // Runs beside the requests, because translation may take long. It cannot be cancelled, so few run at once.
    let translations = analytics.query_quotas.translations.clone();
    let turn = translations.acquire_owned().await.map_err(|e| Error::Internal(e.to_string()))?;
    let running = RunningQuery { usage: &hour, stopwatch: Stopwatch::new() };
    let translating = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        analytics_sql::compile(&text, engine, &context)
    });
    let compiled = translating.await.map_err(|e| Error::Internal(e.to_string()))??;
    let limits =
        QueryLimits { disk_reserve_bytes: analytics.disk_reserve.reserve_bytes(), ..QUERY_LIMITS };
    let rows = analytics.event_store.run_query(&compiled.query, &limits).await;
    drop(running);
    rows?.iter().map(|row| analytics_sql::row_to_object(&compiled.columns, row)).collect()
}

/// Limits how much a workspace may query in this process within an hour.
#[derive(Debug)]
pub struct QueryQuotas {
    queries_max: u64,
    run_time_max: Duration,
    usage_by_hour: moka::sync::Cache<(WorkspaceId, i64), Arc<HourlyUsage>>,
    /// The queries that may be translated at the same time.
    translations: Arc<Semaphore>,
}

/// The queries of a workspace within one hour.
#[derive(Debug, Default)]
pub struct HourlyUsage {
    query_count: AtomicU64,
    run_time_ms: AtomicU64,
}

/// The maximum number of queries that are translated at the same time. Each takes milliseconds and megabytes.
const TRANSLATIONS_MAX: usize = 4;
/// The maximum number of workspaces that are tracked.
const WORKSPACES_MAX: u64 = 100_000;

impl Default for QueryQuotas {
    fn default() -> Self {
        Self::new(1_000, Duration::from_mins(30))
    }
}

impl QueryQuotas {
    pub fn new(questions_max: u64, time_max: Duration) -> Self {
        let hours = moka::sync::Cache::builder()
            .max_capacity(WORKSPACES_MAX)
            .time_to_live(Duration::from_hours(2))
            .build();
        Self {
            queries_max: questions_max,
            run_time_max: time_max,
            usage_by_hour: hours,
            translations: Arc::new(Semaphore::new(TRANSLATIONS_MAX)),
        }
    }

    /// Counts a query, unless the workspace has used up its quota.
    pub fn admit(&self, workspace: &WorkspaceId, now: Timestamp) -> Result<Arc<HourlyUsage>> {
        let hour = (workspace.clone(), now.0.div_euclid(HOUR_MS));
        let hour = self.usage_by_hour.get_with(hour, Arc::default);
        let refused = |what: String| Err(Error::AnalyticsQuery(QueryErrorKind::Quota, what));
        if Duration::from_millis(hour.run_time_ms.load(Ordering::Relaxed)) >= self.run_time_max {
            let seconds = self.run_time_max.as_secs();
            return refused(format!(
                "the queries of this hour have used the maximum of {seconds} seconds"
            ));
        }
        if hour.query_count.fetch_add(1, Ordering::Relaxed) >= self.queries_max {
            let queries_max = self.queries_max;
            return refused(format!(
                "the maximum of {queries_max} queries in this hour is reached"
            ));
        }
        Ok(hour)
    }
}

impl HourlyUsage {
    /// Adds the run time of a query.
    pub fn record_run_time(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.run_time_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

/// A running query. Its time counts even if the caller stops waiting for it.
struct RunningQuery<'a> {
    usage: &'a HourlyUsage,
    stopwatch: Stopwatch,
}

impl Drop for RunningQuery<'_> {
    fn drop(&mut self) {
        self.usage.record_run_time(self.stopwatch.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_reject_queries_when_hourly_count_is_reached() {
        let quotas = QueryQuotas::new(2, Duration::from_secs(10));
        let (one, other) = (WorkspaceId::from("ws_1"), WorkspaceId::from("ws_2"));
        let noon = Timestamp(1_773_144_000_000);

        assert!(quotas.admit(&one, noon).is_ok());
        assert!(quotas.admit(&one, noon.plus_ms(HOUR_MS - 1)).is_ok());
        let refused = quotas.admit(&one, noon).expect_err("the quota is two queries");

        assert_eq!(refused.code().name(), "query_quota_exceeded");
        assert!(quotas.admit(&other, noon).is_ok());
        assert!(quotas.admit(&one, noon.plus_ms(HOUR_MS)).is_ok());
    }

    #[test]
    fn quotas_reject_queries_when_hourly_time_is_used_up() {
        let quotas = QueryQuotas::new(100, Duration::from_secs(10));
        let (workspace, noon) = (WorkspaceId::from("ws_1"), Timestamp(1_773_144_000_000));

        let hour = quotas.admit(&workspace, noon).expect("the first query");
        hour.record_run_time(Duration::from_millis(9_999));
        assert!(quotas.admit(&workspace, noon).is_ok());
        hour.record_run_time(Duration::from_millis(1));

        assert!(quotas.admit(&workspace, noon).is_err());
        assert!(quotas.admit(&workspace, noon.plus_ms(HOUR_MS)).is_ok());
    }
}
