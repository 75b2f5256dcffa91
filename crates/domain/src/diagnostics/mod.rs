//! Diagnostics: the checks of `keyward doctor`. Each check reports what it found and what to do about it.
//!
//! The checks are read-only: they change, create and migrate nothing, and reveal no secret. They work whether a server
//! runs or not, and do not call it.

mod certificate;
mod clocks;
mod contents;
mod counters;
mod data_directory;
mod database;
mod descriptors;
mod events;
mod read_replica;
mod regions;
mod sentinels;
mod transport;

use std::path::Path;
use std::time::Duration;

use analytics::EVENTS_FILE;
use foundation::clock::Clock;
use foundation::config::{Deployment, Settings};
use foundation::error::{Error, Result};
use foundation::vault::MasterKeys;
use limiter::redis::RedisAddress;
use serde::Serialize;
use store::{EventStore, Store};
use tokio::time::timeout;

use self::transport::PasswordTargets;
use crate::context::DATABASE_FILE;

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
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of an integrity check, for which SQLite reads the whole file.
const INTEGRITY_TIMEOUT: Duration = Duration::from_mins(5);

/// Runs all checks of a server with the given settings. `masters` are the master keys that the server would load.
pub async fn run_diagnostics(settings: &Settings, masters: Option<&MasterKeys>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let clock = Clock::System;
    let store = match &settings.deployment {
        Deployment::Embedded { data_dir } => {
            findings.extend(data_directory::check_data_directory(data_dir));
            if settings.master_keys.is_none() {
                findings.extend(data_directory::check_rotation(data_dir));
            }
            open_sqlite(data_dir, &mut findings).await
        }
        Deployment::Replica { database_url, redis_url } => {
            let has_read_replica = settings.database_read_url.is_some();
            let store = open_postgres(database_url, has_read_replica, &clock, &mut findings).await;
            let redis = RedisAddress::new(redis_url, &settings.redis_tls);
            findings.extend(counters::check_redis(settings, &redis, &clock).await);
            findings.extend(sentinels::check_sentinels(&redis).await);
            if let Some(regions) = &settings.regions {
                findings.extend(regions::check_servers(settings, redis_url, regions, &clock).await);
            }
            store
        }
    };
    findings.extend(check_transport(settings));
    if let Some(store) = &store {
        check_contents(settings, store, masters, &clock, &mut findings).await;
        store.close().await;
    }
    if let Some(files) = &settings.server_tls {
        findings.push(certificate::check_certificate(files, clock.now()));
    }
    findings.push(descriptors::check_open_files(settings));
    findings.extend(events::check_disk(settings));
    findings.push(events::report_retention(&settings.retention));
    findings
}

/// Checks the connections to other servers. Absent: there are none.
fn check_transport(settings: &Settings) -> Option<Finding> {
    let mut targets = PasswordTargets {
        clickhouse_url: settings.clickhouse_url.as_ref(),
        ..PasswordTargets::default()
    };
    if let Deployment::Replica { database_url, redis_url } = &settings.deployment {
        let others = [&settings.database_read_url, &settings.analytics_url];
        targets.database_urls.push(database_url);
        targets.database_urls.extend(others.into_iter().flatten().map(String::as_str));
        let other_regions = settings.regions.iter().flat_map(|regions| &regions.others);
        let redis_urls = std::iter::once(redis_url).chain(other_regions.map(|(_, url)| url));
        let address = |url: &String| RedisAddress::new(url, &settings.redis_tls);
        targets.redis = redis_urls.map(address).collect();
    } else {
        targets.clickhouse_url?;
    }
    Some(transport::check_transport(&targets))
}

/// Runs the checks of the database content. Those that need the current schema are skipped if it differs.
async fn check_contents(
    settings: &Settings,
    store: &Store,
    masters: Option<&MasterKeys>,
    clock: &Clock,
    findings: &mut Vec<Finding>,
) {
    let schema = run_check("schema", database::check_schema(store.load_schema())).await;
    let is_current = schema.state == Severity::Ok;
    findings.push(schema);
    if is_current {
        if let Deployment::Replica { .. } = &settings.deployment {
            findings
                .push(run_check("connections", database::check_connections(settings, store)).await);
            findings.push(run_check("replicas", contents::check_replicas(store)).await);
            if let Some(regions) = &settings.regions {
                findings.push(run_check("regions", regions::check_names(regions, store)).await);
            }
            if let Some(url) = &settings.database_read_url {
                let check = read_replica::check_read_replica(url, store);
                findings.push(run_check("read-replica", check).await);
            }
            findings.push(
                run_check("credits", contents::check_withheld_credits(store, clock.now())).await,
            );
        }
        findings.push(run_check("master-key", contents::check_master_key(store, masters)).await);
        findings.push(run_check("root-keys", contents::check_root_keys(store)).await);
        findings.push(run_check("people", contents::check_owners(store)).await);
    }
    match &settings.deployment {
        Deployment::Embedded { data_dir } => {
            let file = data_dir.join(EVENTS_FILE);
            if !file.exists() {
                let found = format!("{EVENTS_FILE} does not exist yet: the first start creates it");
                findings.push(Finding::warning("events", found, "start the server"));
                return;
            }
            let events = EventStore::open_read_only(&file);
            let integrity = database::check_integrity(events.check_integrity());
            findings.push(run_integrity_check("events-integrity", integrity).await);
            check_event_store(events, settings, clock, findings).await;
        }
        Deployment::Replica { database_url, .. } => {
            let analytics_url = settings.analytics_url.as_deref();
            match EventStore::connect(database_url, analytics_url) {
                Ok(events) => check_event_store(events, settings, clock, findings).await,
                Err(e) => findings.push(check_failure("events-schema", &e)),
            }
        }
    }
}

async fn check_event_store(
    events: EventStore,
    settings: &Settings,
    clock: &Clock,
    findings: &mut Vec<Finding>,
) {
    let events = match events.with_clickhouse(settings.clickhouse_url.as_ref()) {
        Ok(events) => events,
        Err(e) => return findings.push(check_failure("clickhouse", &e)),
    };
    let schema = run_check("events-schema", database::check_schema(events.load_schema())).await;
    let is_current = schema.state == Severity::Ok;
    findings.push(schema);
    if is_current {
        findings.push(run_check("events", events::check_events(&events, clock.now())).await);
        if events.clickhouse().is_none() {
            let raw = events::check_single_events(&events, settings, clock.now());
            findings.push(run_check("single-events", raw).await);
        }
        if let (None, Deployment::Replica { .. }) = (events.clickhouse(), &settings.deployment) {
            let is_set = settings.analytics_url.is_some();
            findings.push(
                run_check("analytics-role", events::check_analytics_role(&events, is_set)).await,
            );
        }
        if let Some(clickhouse) = events.clickhouse() {
            let check = events::check_clickhouse(&events, clickhouse, clock.now());
            findings.push(run_check("clickhouse", check).await);
        }
    }
    events.close().await;
}

async fn open_sqlite(data_dir: &Path, findings: &mut Vec<Finding>) -> Option<Store> {
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
            findings.push(
                run_integrity_check(
                    "integrity",
                    database::check_integrity(store.check_integrity()),
                )
                .await,
            );
            Some(store)
        }
        Err(e) => {
            let found = format!("failed to open {}: {}", file.display(), e.innermost_message());
            let todo = "make the file readable, or restore the backup";
            findings.push(Finding::problem("database", found, todo));
            None
        }
    }
}

async fn open_postgres(
    url: &str,
    has_read_replica: bool,
    clock: &Clock,
    findings: &mut Vec<Finding>,
) -> Option<Store> {
    match Store::connect_read_only(url).await {
        Ok(store) => {
            let check = database::check_postgres(&store, has_read_replica);
            findings.push(run_check("database", check).await);
            findings.push(
                run_check("database-clock", clocks::check_postgres_clock(&store, clock)).await,
            );
            findings.push(run_check("durability", database::check_durability(&store)).await);
            Some(store)
        }
        Err(e) => {
            findings.push(database::connection_failure(&e));
            None
        }
    }
}

/// Runs a check with the usual timeout. An error or a timeout becomes a problem.
async fn run_check(check: &'static str, work: impl Future<Output = Result<Finding>>) -> Finding {
    with_check_name(check, run_with_timeout(CHECK_TIMEOUT, work).await)
}

/// Runs a check that reads a whole file. Otherwise like [`run_check`].
async fn run_integrity_check(
    check: &'static str,
    work: impl Future<Output = Result<Finding>>,
) -> Finding {
    with_check_name(check, run_with_timeout(INTEGRITY_TIMEOUT, work).await)
}

async fn run_with_timeout(
    limit: Duration,
    work: impl Future<Output = Result<Finding>>,
) -> Result<Finding> {
    timeout(limit, work).await.unwrap_or(Err(Error::StoreTimeout(limit.as_secs())))
}

/// Gives a finding the name of the check. An error becomes a problem.
fn with_check_name(check: &'static str, result: Result<Finding>) -> Finding {
    match result {
        Ok(finding) => Finding { check, ..finding },
        Err(e) => check_failure(check, &e),
    }
}

fn check_failure(check: &'static str, e: &Error) -> Finding {
    let found = format!("the check failed: {}", e.innermost_message());
    Finding::problem(check, found, "see the log of the database for this time")
}

/// Formats a number with its noun, such as `2 owners`.
fn format_count(number: usize, one: &str, more: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {more}") }
}

/// Formats a duration in milliseconds, such as `0.4 ms`.
fn format_millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

/// Formats an age in milliseconds in the unit that fits, such as `3 min`.
fn format_age(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        172_800.. => format!("{} days", seconds / 86_400),
    }
}

/// Formats a size in bytes in the unit that fits, such as `1.5 GB`.
fn format_size(bytes: u64) -> String {
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
        assert_eq!([119_999, 120_000].map(format_age), ["119 s", "2 min"]);
        assert_eq!([7_199_999, 7_200_000].map(format_age), ["119 min", "2 h"]);
        assert_eq!([172_799_999, 172_800_000].map(format_age), ["47 h", "2 days"]);
        assert_eq!([999_999, 1_000_000].map(format_size), ["1000 kB", "1 MB"]);
        assert_eq!([999_999_999, 1_500_000_000].map(format_size), ["999 MB", "1.5 GB"]);
    }
}
