//! Checks of analytics events: rollups, delivery to ClickHouse, disk space, database role and retention.

use analytics::event_space::DiskReserve;
use foundation::clock::{DAY_MS, MINUTE_MS, Timestamp};
use foundation::config::{ANALYTICS_URL, EVENTS_BYTES, EVENTS_RESERVE, Settings};
use foundation::error::Result;
use foundation::model::{EventKind, Retention, RetentionSettings};
use store::EventStore;
use store::clickhouse::ClickHouse;
use store::raw_events::RawEvents;

use super::{Finding, format_age, format_count, format_size};

/// The age after which a batch should have been rolled up.
const ROLLUP_DELAY_MAX_MS: i64 = 10 * MINUTE_MS;

/// The age after which an event should have been delivered to ClickHouse.
const DELIVERY_DELAY_MAX_MS: i64 = 5 * MINUTE_MS;

/// Reports the age of the last events, their size, and batches whose rollup is overdue.
pub async fn check_events(events: &EventStore, now: Timestamp) -> Result<Finding> {
    let state = events.load_state(now.plus_ms(-ROLLUP_DELAY_MAX_MS)).await?;
    let size = format_size(u64::try_from(state.size_bytes).unwrap_or(0));
    let found = match state.last_written_at {
        None => format!("none were written within the last day; total size {size}"),
        Some(at) => {
            format!("the last were written {} ago; total size {size}", format_age(now.0 - at.0))
        }
    };
    if state.late > 0 {
        let late = usize::try_from(state.late).unwrap_or(usize::MAX);
        let found =
            format!("{found}; {} not rolled up", format_count(late, "batch is", "batches are"));
        let todo = "search the logs of the servers for \"failed to roll up events\"";
        return Ok(Finding::warning("events", found, todo));
    }
    Ok(Finding::ok("events", found))
}

/// Checks that ClickHouse responds, and reports the events that are not delivered yet.
pub async fn check_clickhouse(
    events: &EventStore,
    clickhouse: &ClickHouse,
    now: Timestamp,
) -> Result<Finding> {
    let undelivered = events.read_local().await?.count_undelivered().await?;
    let age_ms = now.0 - undelivered.since.0;
    let pending = match usize::try_from(undelivered.events).unwrap_or(usize::MAX) {
        0 => None,
        events => Some(format_count(events, "event is pending", "events are pending")),
    };
    let backlog = match &pending {
        None => "no events are pending".to_owned(),
        Some(events) => format!("{events}, the oldest for {}", format_age(age_ms)),
    };
    Ok(match clickhouse.fetch_version().await {
        Err(e) => {
            let todo = "check KEYWARD_CLICKHOUSE_URL; see \"Events are not delivered to ClickHouse\" in \
                docs/troubleshoot.md";
            Finding::problem("clickhouse", format!("{e}; {backlog}"), todo)
        }
        Ok(version) if pending.is_some() && age_ms > DELIVERY_DELAY_MAX_MS => {
            let todo = "search the logs of the servers for \"failed to deliver events\"";
            Finding::warning("clickhouse", format!("version {version} responds; {backlog}"), todo)
        }
        Ok(version) => Finding::ok("clickhouse", format!("version {version} responds; {backlog}")),
    })
}

/// Reports since when single events are stored, and their size. A full event store that deletes events before their
/// retention ends is a warning.
pub async fn check_single_events(
    events: &EventStore,
    settings: &Settings,
    now: Timestamp,
) -> Result<Finding> {
    let check = "single-events";
    let RawEvents { oldest_at: since, size_bytes } = events.measure_raw_events().await?;
    let used = format_size(size_bytes);
    let used = match settings.events_max_bytes {
        None => format!("about {used} in use, no limit"),
        Some(max) => format!("about {used} of at most {} in use", format_size(max)),
    };
    let Some(since) = since else {
        return Ok(Finding::ok(check, format!("none are stored; {used}")));
    };
    let found = format!("stored since {}; {used}", format_time(since));
    let days = EventKind::ALL
        .map(|kind| settings.retention.for_kind(kind).raw_days)
        .into_iter()
        .max()
        .unwrap_or(0);
    let is_kept = now.0 - since.0 >= i64::from(days) * DAY_MS;
    let is_full = settings.events_max_bytes.is_some_and(|max| size_bytes >= max / 10 * 9);
    if is_full && !is_kept {
        let todo = format!(
            "events are deleted before their retention of {days} days ends; raise {EVENTS_BYTES} to keep more"
        );
        return Ok(Finding::warning(check, found, todo));
    }
    Ok(Finding::ok(check, found))
}

/// Checks that the disk of an embedded server has space for events.
pub fn check_disk(settings: &Settings) -> Option<Finding> {
    let disk_reserve = DiskReserve::from_settings(settings);
    let (check, free) = ("events-disk", disk_reserve.read_free_bytes()?);
    let reserve = format_size(disk_reserve.reserve_bytes());
    let found = format!(
        "the disk has {} free; events are written until {reserve} are left",
        format_size(free)
    );
    Some(match disk_reserve.find_shortage() {
        None => Finding::ok(check, found),
        Some(_) => {
            let todo = format!(
                "events are not recorded now: free disk space, or lower {EVENTS_BYTES} or {EVENTS_RESERVE}"
            );
            Finding::problem(check, found, todo)
        }
    })
}

fn format_time(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// Checks that analytics queries run as a Postgres role that can only read events. `is_set`: whether a role is
/// configured.
pub async fn check_analytics_role(events: &EventStore, is_set: bool) -> Result<Finding> {
    let check = "analytics-role";
    let Some(role) = events.find_analytics_role().await? else {
        return Ok(Finding::ok(check, "analytics queries do not run in Postgres"));
    };
    let (name, todo) = (&role.name, "see \"A role for analytics queries\" in docs/analytics.md");
    if !is_set {
        let found =
            format!("analytics queries run as {name}, which can read and change everything");
        return Ok(Finding::warning(check, found, format!("set {ANALYTICS_URL}; {todo}")));
    }
    let excess = if role.is_superuser {
        "is a superuser"
    } else if role.writes_events {
        "can change events"
    } else if role.reads_other_tables {
        "can read or change other tables than those of events"
    } else {
        let found = match role.temp_file_limit.as_str() {
            "-1" => format!(
                "analytics queries run as {name}, which only reads events; it has no temp_file_limit"
            ),
            limit => format!(
                "analytics queries run as {name}, which only reads events; temp_file_limit is {limit}"
            ),
        };
        return Ok(Finding::ok(check, found));
    };
    let found = format!("analytics queries run as {name}, which {excess}");
    Ok(Finding::warning(check, found, format!("revoke this from the role; {todo}")))
}

/// Reports the retention of events and rollups.
pub fn report_retention(settings: &RetentionSettings) -> Finding {
    let days = |retention: &Retention| {
        let Retention {
            raw_days: raw,
            minute_days: minute,
            hour_days: hour,
            day_days: day,
            month_days: month,
        } = retention;
        format!("{raw} days, rollups {minute}, {hour}, {day}, {month}")
    };
    let (verifications, ratelimits) = (days(&settings.verifications), days(&settings.ratelimits));
    let found = format!(
        "verifications {verifications}; rate-limit checks {ratelimits} (per minute, hour, day and month)"
    );
    Finding::ok("retention", found)
}
