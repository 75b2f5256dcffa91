//! Diagnostics: the checks of `keyward doctor`. Each check reports what it found and what to do about it.
//!
//! The checks are read-only: they change, create and migrate nothing, and reveal no secret. They work whether a server
//! runs or not, and do not call it.

mod clocks;
mod contents;
mod counters;
mod database;
mod descriptors;
mod events;
mod files;

use std::path::Path;
use std::time::Duration;

use foundation::clock::Clock;
use foundation::config::{Deployment, Settings};
use foundation::error::{Error, Result};
use foundation::vault::MasterKeys;
use serde::Serialize;
use store::{EventStore, Store};
use tokio::time::timeout;

use crate::app::{DATABASE_FILE, EVENTS_FILE};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Ok,
    /// It works, but the operator should know.
    Warning,
    /// It does not work, or will soon stop working.
    Problem,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub state: Severity,
    pub found: String,
    /// What the operator should do. Absent if nothing.
    pub todo: Option<String>,
}

impl Finding {
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, state: Severity::Ok, found: found.into(), todo: None }
    }

    pub fn warning(check: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { check, state: Severity::Warning, found: found.into(), todo: Some(todo.into()) }
    }

    pub fn problem(check: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { check, state: Severity::Problem, found: found.into(), todo: Some(todo.into()) }
    }
}

/// The timeout of a check that calls a dependency.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of an integrity check, for which SQLite reads the whole file.
const READING_TIMEOUT: Duration = Duration::from_mins(5);

/// Runs all checks of a server with the given settings. `masters` are the master keys that the server would load.
pub async fn run_diagnostics(settings: &Settings, masters: Option<&MasterKeys>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let clock = Clock::System;
    let store = match &settings.engines {
        Deployment::Embedded { data_dir } => {
            findings.extend(files::look(data_dir));
            embedded(data_dir, &mut findings).await
        }
        Deployment::Replica { database_url, redis_url } => {
            let store = replica(database_url, &clock, &mut findings).await;
            findings.extend(counters::look(settings, redis_url, &clock).await);
            store
        }
    };
    if let Some(store) = &store {
        within_schema(settings, store, masters, &clock, &mut findings).await;
        store.close().await;
    }
    findings.push(descriptors::look(settings));
    findings.extend(events::disk(settings));
    findings.push(events::retention(&settings.kept));
    findings
}

/// Runs the checks of the database content. Those that need the current schema are skipped if it differs.
async fn within_schema(
    settings: &Settings,
    store: &Store,
    masters: Option<&MasterKeys>,
    clock: &Clock,
    findings: &mut Vec<Finding>,
) {
    let schema = run_check("schema", database::schema(store.schema())).await;
    let is_current = schema.state == Severity::Ok;
    findings.push(schema);
    if is_current {
        if let Deployment::Replica { .. } = &settings.engines {
            findings.push(run_check("connections", database::connections(settings, store)).await);
            findings.push(run_check("replicas", contents::replicas(store)).await);
            findings.push(run_check("credits", contents::credits(store, clock.now())).await);
        }
        findings.push(run_check("master-key", contents::master_key(store, masters)).await);
        findings.push(run_check("root-keys", contents::root_keys(store)).await);
        findings.push(run_check("people", contents::people(store)).await);
    }
    match &settings.engines {
        Deployment::Embedded { data_dir } => {
            let file = data_dir.join(EVENTS_FILE);
            if !file.exists() {
                let found = format!("{EVENTS_FILE} does not exist yet: the first start creates it");
                findings.push(Finding::warning("events", found, "start the server"));
                return;
            }
            let events = EventStore::open_read_only(&file);
            let integrity = database::integrity(events.check_integrity());
            findings.push(look_long("events-integrity", integrity).await);
            examine_events(events, settings, clock, findings).await;
        }
        Deployment::Replica { database_url, .. } => {
            let analytics_url = settings.analytics_url.as_deref();
            match EventStore::connect(database_url, analytics_url) {
                Ok(events) => examine_events(events, settings, clock, findings).await,
                Err(e) => findings.push(failed("events-schema", &e)),
            }
        }
    }
}

async fn examine_events(
    events: EventStore,
    settings: &Settings,
    clock: &Clock,
    findings: &mut Vec<Finding>,
) {
    let events = match events.with_clickhouse(settings.clickhouse_url.as_ref()) {
        Ok(events) => events,
        Err(e) => return findings.push(failed("clickhouse", &e)),
    };
    let schema = run_check("events-schema", database::schema(events.schema())).await;
    let is_current = schema.state == Severity::Ok;
    findings.push(schema);
    if is_current {
        findings.push(run_check("events", events::state(&events, clock.now())).await);
        if events.clickhouse().is_none() {
            let raw = events::raw(&events, settings, clock.now());
            findings.push(run_check("single-events", raw).await);
        }
        if let (None, Deployment::Replica { .. }) = (events.clickhouse(), &settings.engines) {
            let is_set = settings.analytics_url.is_some();
            findings
                .push(run_check("analytics-role", events::analytics_role(&events, is_set)).await);
        }
        if let Some(clickhouse) = events.clickhouse() {
            let check = events::clickhouse(&events, clickhouse, clock.now());
            findings.push(run_check("clickhouse", check).await);
        }
    }
    events.close().await;
}

async fn embedded(data_dir: &Path, findings: &mut Vec<Finding>) -> Option<Store> {
    let file = data_dir.join(DATABASE_FILE);
    if !file.exists() {
        let found = format!("{} does not exist yet: the first start creates it", file.display());
        findings.push(Finding::warning("database", found, "start the server"));
        return None;
    }
    match Store::open_read_only(&file).await {
        Ok(store) => {
            let found = format!("SQLite, {}", file.display());
            findings.push(Finding::ok("database", found));
            findings
                .push(look_long("integrity", database::integrity(store.check_integrity())).await);
            Some(store)
        }
        Err(e) => {
            let found = format!("failed to open {}: {}", file.display(), e.cause());
            let todo = "make the file readable, or restore the backup";
            findings.push(Finding::problem("database", found, todo));
            None
        }
    }
}

async fn replica(url: &str, clock: &Clock, findings: &mut Vec<Finding>) -> Option<Store> {
    match Store::connect_read_only(url).await {
        Ok(store) => {
            findings.push(run_check("database", database::postgres(&store)).await);
            findings.push(run_check("database-clock", clocks::postgres(&store, clock)).await);
            Some(store)
        }
        Err(e) => {
            let found = format!("Postgres is unreachable: {}", e.cause());
            let todo = "check that Postgres runs, that this machine can connect to it, and KEYWARD_DATABASE_URL";
            findings.push(Finding::problem("database", found, todo));
            None
        }
    }
}

/// Runs a check with the usual timeout. An error or a timeout becomes a problem.
async fn run_check(check: &'static str, work: impl Future<Output = Result<Finding>>) -> Finding {
    named(check, look_within(TIMEOUT, work).await)
}

/// Runs a check that reads a whole file. Otherwise like [`run_check`].
async fn look_long(check: &'static str, work: impl Future<Output = Result<Finding>>) -> Finding {
    named(check, look_within(READING_TIMEOUT, work).await)
}

async fn look_within(
    limit: Duration,
    work: impl Future<Output = Result<Finding>>,
) -> Result<Finding> {
    timeout(limit, work).await.unwrap_or(Err(Error::StoreTimeout(limit.as_secs())))
}

/// Gives a finding the name of the check. An error becomes a problem.
fn named(check: &'static str, result: Result<Finding>) -> Finding {
    match result {
        Ok(finding) => Finding { check, ..finding },
        Err(e) => failed(check, &e),
    }
}

fn failed(check: &'static str, e: &Error) -> Finding {
    let found = format!("the check failed: {}", e.cause());
    Finding::problem(check, found, "see the log of the database for this time")
}

/// Formats a number with its noun, such as `2 owners`.
fn count(number: usize, one: &str, more: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {more}") }
}

/// Formats a duration in milliseconds, such as `0.4 ms`.
fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

/// Formats an age in milliseconds in the unit that fits, such as `3 min`.
fn ago(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        172_800.. => format!("{} days", seconds / 86_400),
    }
}

/// Formats a size in bytes in the unit that fits, such as `1.5 GB`.
fn size(bytes: u64) -> String {
    match bytes {
        ..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        1_000_000_000.. => {
            format!("{}.{} GB", bytes / 1_000_000_000, bytes % 1_000_000_000 / 100_000_000)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_are_formatted_in_the_unit_that_fits() {
        assert_eq!([119_999, 120_000].map(ago), ["119 s", "2 min"]);
        assert_eq!([7_199_999, 7_200_000].map(ago), ["119 min", "2 h"]);
        assert_eq!([172_799_999, 172_800_000].map(ago), ["47 h", "2 days"]);
        assert_eq!([999_999, 1_000_000].map(size), ["1000 kB", "1 MB"]);
        assert_eq!([999_999_999, 1_500_000_000].map(size), ["999 MB", "1.5 GB"]);
    }
}
