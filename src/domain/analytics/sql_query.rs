//! Questions in SQL: who may ask about what, and how much.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use analytics_sql::{ANSWER_MAX_BYTES, Family, LISTS_MAX_BYTES, QueryContext, RowScope};
use foundation::clock::{Stopwatch, Timestamp};
use foundation::error::{Error, QueryFault, Result};
use foundation::id::WorkspaceId;
use serde_json::value::RawValue;
use store::analytics_query::QueryLimits;

use super::super::caller::Caller;
use super::super::permission::Action;
use crate::app::App;

/// The most rows of an answer.
const ROWS_MAX: u64 = 10_000;
/// How long an answer may take: a connection is waited for, and the question then has its time.
pub const TIMEOUT: Duration = Duration::from_secs(20);
/// How much one question may take. The reserve of the disk is a setting.
pub const BOUNDS: QueryLimits = QueryLimits {
    time: Duration::from_secs(10),
    answer_max_bytes: ANSWER_MAX_BYTES,
    memory_max_bytes: 512 * 1024 * 1024,
    disk_reserve_bytes: 0,
    list_items_max: 10_000,
    lists_max_bytes: LISTS_MAX_BYTES,
    joined_rows_max: 1_000_000,
};

/// Asks about verifications: of every API, or of those for which the root key may.
pub async fn verifications(app: &App, caller: &Caller, text: &str) -> Result<Vec<Box<RawValue>>> {
    let only = only(caller, Action::ReadApiAnalytics)?;
    ask(app, caller, Family::Verifications, only, text).await
}

/// Asks about checks of the standalone limiter: of every namespace, or of those for which the root key may.
pub async fn ratelimits(app: &App, caller: &Caller, text: &str) -> Result<Vec<Box<RawValue>>> {
    let only = only(caller, Action::ReadRatelimitAnalytics)?;
    ask(app, caller, Family::Ratelimits, only, text).await
}

/// The ids that the caller may ask about. Absent: any.
fn only(caller: &Caller, action: Action) -> Result<Option<Vec<String>>> {
    if caller.may(action) {
        return Ok(None);
    }
    let instances = caller.instances(action);
    match instances.is_empty() {
        true => Err(Error::Forbidden(action.everywhere())),
        false => Ok(Some(instances)),
    }
}

async fn ask(
    app: &App,
    caller: &Caller,
    family: Family,
    only: Option<Vec<String>>,
    text: &str,
) -> Result<Vec<Box<RawValue>>> {
    let (workspace, now) = (caller.workspace(), app.clock.now());
    let asked = QueryContext {
        family,
        visible: RowScope { workspace_id: workspace.as_str().to_owned(), only },
        now: now.0,
        retention: match family {
            Family::Verifications => app.settings.kept.verifications,
            Family::Ratelimits => app.settings.kept.ratelimits,
        },
        rows_max: ROWS_MAX,
        inner_rows_max: None,
        delivered: app.events.delivered().await?,
    };
    let hour = app.query_quotas.admit(workspace, now)?;
    let (text, engine) = (text.to_owned(), app.events.engine());
    // Beside the requests, however long it takes.
    let translating =
        tokio::task::spawn_blocking(move || analytics_sql::translate(&text, engine, &asked));
    let question = translating.await.map_err(|e| Error::Internal(e.to_string()))??;
    let running = Running { hour: &hour, since: Stopwatch::new() };
    let bounds = QueryLimits { disk_reserve_bytes: app.settings.events_reserve_bytes, ..BOUNDS };
    let rows = app.events.run_query(&question.query, &bounds).await;
    drop(running);
    rows?.iter().map(|row| analytics_sql::object(&question.columns, row)).collect()
}

/// How much a workspace may ask of this process within an hour.
#[derive(Debug)]
pub struct QueryQuotas {
    questions_max: u64,
    time_max: Duration,
    hours: moka::sync::Cache<(WorkspaceId, i64), Arc<HourlyUsage>>,
}

/// What a workspace has asked in one hour.
#[derive(Debug, Default)]
pub struct HourlyUsage {
    questions: AtomicU64,
    ran_ms: AtomicU64,
}

const HOUR_MS: i64 = 3_600_000;
/// How many workspaces are counted.
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
        Self { questions_max, time_max, hours }
    }

    /// Counts a question, unless the workspace has asked enough.
    pub fn admit(&self, workspace: &WorkspaceId, now: Timestamp) -> Result<Arc<HourlyUsage>> {
        let hour = (workspace.clone(), now.0.div_euclid(HOUR_MS));
        let hour = self.hours.get_with(hour, Arc::default);
        let refused = |what: String| Err(Error::AnalyticsQuery(QueryFault::Quota, what));
        if Duration::from_millis(hour.ran_ms.load(Ordering::Relaxed)) >= self.time_max {
            let seconds = self.time_max.as_secs();
            return refused(format!(
                "the queries of this hour ran for {seconds} seconds, which is the most"
            ));
        }
        if hour.questions.fetch_add(1, Ordering::Relaxed) >= self.questions_max {
            let most = self.questions_max;
            return refused(format!("there were {most} queries in this hour, which is the most"));
        }
        Ok(hour)
    }
}

impl HourlyUsage {
    /// A question ran for so long.
    pub fn ran(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.ran_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

/// A question that runs. Whoever stops waiting for it has asked it all the same.
struct Running<'a> {
    hour: &'a HourlyUsage,
    since: Stopwatch,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.hour.ran(self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_asks_so_often_within_an_hour() {
        let quotas = QueryQuotas::new(2, Duration::from_secs(10));
        let (one, other) = (WorkspaceId::from("ws_1"), WorkspaceId::from("ws_2"));
        let noon = Timestamp(1_773_144_000_000);

        assert!(quotas.admit(&one, noon).is_ok());
        assert!(quotas.admit(&one, noon.plus_ms(HOUR_MS - 1)).is_ok());
        let refused = quotas.admit(&one, noon).expect_err("it has asked twice");

        assert_eq!(refused.code().name(), "query_quota_exceeded");
        assert!(quotas.admit(&other, noon).is_ok());
        assert!(quotas.admit(&one, noon.plus_ms(HOUR_MS)).is_ok());
    }

    #[test]
    fn the_questions_of_a_workspace_run_so_long_within_an_hour() {
        let quotas = QueryQuotas::new(100, Duration::from_secs(10));
        let (workspace, noon) = (WorkspaceId::from("ws_1"), Timestamp(1_773_144_000_000));

        let hour = quotas.admit(&workspace, noon).expect("it is the first");
        hour.ran(Duration::from_millis(9_999));
        assert!(quotas.admit(&workspace, noon).is_ok());
        hour.ran(Duration::from_millis(1));

        assert!(quotas.admit(&workspace, noon).is_err());
        assert!(quotas.admit(&workspace, noon.plus_ms(HOUR_MS)).is_ok());
    }
}
