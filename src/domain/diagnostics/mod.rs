//! What a person would look at first when something is wrong, looked at one after the other: each with what was found,
//! and what to do about it.
//!
//! Nothing is changed, made or migrated, and no secret is told. A server need not run, and is not asked.

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

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Ok,
    /// It works, and somebody should know.
    Warning,
    /// It does not work, or soon will not.
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

/// What came of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub state: Severity,
    pub found: String,
    /// Absent where nothing is to be done.
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

/// How long each look at a server may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long SQLite may take to read through its files.
const READING_TIMEOUT: Duration = Duration::from_mins(5);

/// Looks at everything behind a server that has these settings. `masters` are the master keys that it would have.
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

/// What stands in the database, where that is as this program knows it.
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
                let found = format!("there is no {EVENTS_FILE} yet: the first start makes it");
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
            let asked = events::clickhouse(&events, clickhouse, clock.now());
            findings.push(run_check("clickhouse", asked).await);
        }
    }
    events.close().await;
}

async fn embedded(data_dir: &Path, findings: &mut Vec<Finding>) -> Option<Store> {
    let file = data_dir.join(DATABASE_FILE);
    if !file.exists() {
        let found = format!("there is no {} yet: the first start makes it", file.display());
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
            let found = format!("cannot open {}: {}", file.display(), e.cause());
            let todo = "make the file readable, or put the backup back";
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
            let found = format!("Postgres cannot be reached: {}", e.cause());
            let todo =
                "check that Postgres runs, that this machine reaches it, and KEYWARD_DATABASE_URL";
            findings.push(Finding::problem("database", found, todo));
            None
        }
    }
}

/// What came of a check, or why nothing did.
async fn run_check(check: &'static str, looking: impl Future<Output = Result<Finding>>) -> Finding {
    named(check, look_within(TIMEOUT, looking).await)
}

async fn look_long(check: &'static str, looking: impl Future<Output = Result<Finding>>) -> Finding {
    named(check, look_within(READING_TIMEOUT, looking).await)
}

async fn look_within(
    within: Duration,
    looking: impl Future<Output = Result<Finding>>,
) -> Result<Finding> {
    timeout(within, looking).await.unwrap_or(Err(Error::StoreTimeout(within.as_secs())))
}

fn named(check: &'static str, outcome: Result<Finding>) -> Finding {
    match outcome {
        Ok(finding) => Finding { check, ..finding },
        Err(e) => failed(check, &e),
    }
}

fn failed(check: &'static str, e: &Error) -> Finding {
    let found = format!("it could not be found out: {}", e.cause());
    Finding::problem(check, found, "look at what the database's own log says of this moment")
}

/// A number of things, in words.
fn count(number: usize, one: &str, more: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {more}") }
}

/// How long something takes, such as `0.4 ms`.
fn millis(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1e3)
}

/// How long ago something was, such as `3 min`.
fn ago(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        172_800.. => format!("{} days", seconds / 86_400),
    }
}

/// A size, such as `1.5 GB`.
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
    fn times_and_sizes_are_told_in_the_unit_that_fits() {
        assert_eq!([119_999, 120_000].map(ago), ["119 s", "2 min"]);
        assert_eq!([7_199_999, 7_200_000].map(ago), ["119 min", "2 h"]);
        assert_eq!([172_799_999, 172_800_000].map(ago), ["47 h", "2 days"]);
        assert_eq!([999_999, 1_000_000].map(size), ["1000 kB", "1 MB"]);
        assert_eq!([999_999_999, 1_500_000_000].map(size), ["999 MB", "1.5 GB"]);
    }
}
