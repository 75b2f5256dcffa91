//! What happened: whether it is written down, and for how long.

use foundation::clock::Timestamp;
use foundation::config::{ANALYTICS_URL, EVENTS_BYTES, EVENTS_RESERVE, Settings};
use foundation::error::Result;
use foundation::model::{EventKind, Retention, RetentionSettings};
use store::EventStore;
use store::clickhouse::ClickHouse;
use store::raw_events::RawEvents;

use super::{Finding, ago, count, size};
use crate::domain::analytics::event_space;

/// After how long a batch should have been summed up.
const LATE_MS: i64 = 10 * 60_000;

const DAY_MS: i64 = 86_400_000;

/// After how long an event should have arrived in ClickHouse.
const UNDELIVERED_MS: i64 = 5 * 60_000;

/// How far they are.
pub async fn state(events: &EventStore, now: Timestamp) -> Result<Finding> {
    let state = events.state(now.plus_ms(-LATE_MS)).await?;
    let size = size(u64::try_from(state.size_bytes).unwrap_or(0));
    let found = match state.last_written_at {
        None => format!("none were written within the last day; they take {size}"),
        Some(at) => format!("the last were written {} ago; they take {size}", ago(now.0 - at.0)),
    };
    if state.late > 0 {
        let late = usize::try_from(state.late).unwrap_or(usize::MAX);
        let found = format!("{found}; {} not summed up", count(late, "batch is", "batches are"));
        let todo = "look in the servers' logs for \"cannot sum up events\"";
        return Ok(Finding::warning("events", found, todo));
    }
    Ok(Finding::ok("events", found))
}

/// Whether the ClickHouse that they go to answers, and how many are on their way.
pub async fn clickhouse(
    events: &EventStore,
    clickhouse: &ClickHouse,
    now: Timestamp,
) -> Result<Finding> {
    let waiting = events.read_local().await?.undelivered().await?;
    let age_ms = now.0 - waiting.since.0;
    let waiting = match usize::try_from(waiting.events).unwrap_or(usize::MAX) {
        0 => None,
        events => Some(count(events, "event waits", "events wait")),
    };
    let told = match &waiting {
        None => "no event waits".to_owned(),
        Some(events) => format!("{events}, the oldest for {}", ago(age_ms)),
    };
    Ok(match clickhouse.version().await {
        Err(failed) => {
            let todo = "see \"Events are not delivered to ClickHouse\" in docs/troubleshoot.md; KEYWARD_CLICKHOUSE_URL names it";
            Finding::problem("clickhouse", format!("{failed}; {told}"), todo)
        }
        Ok(version) if waiting.is_some() && age_ms > UNDELIVERED_MS => {
            let todo = "look in the servers' logs for \"cannot deliver events\"";
            Finding::warning("clickhouse", format!("version {version} answers; {told}"), todo)
        }
        Ok(version) => Finding::ok("clickhouse", format!("version {version} answers; {told}")),
    })
}

/// From when on single events are there, and how much of their room they take.
pub async fn raw(events: &EventStore, settings: &Settings, now: Timestamp) -> Result<Finding> {
    let check = "single-events";
    let RawEvents { since, size_bytes } = events.raw_events().await?;
    let takes = size(size_bytes);
    let takes = match settings.events_max_bytes {
        None => format!("they take about {takes}, and may take any"),
        Some(max) => format!("they take about {takes} of the {} that they may", size(max)),
    };
    let Some(since) = since else {
        return Ok(Finding::ok(check, format!("there are none; {takes}")));
    };
    let found = format!("there from {} on; {takes}", shown(since));
    let days = EventKind::ALL.map(|kind| settings.kept.of(kind).raw).into_iter().max().unwrap_or(0);
    let is_kept = now.0 - since.0 >= i64::from(days) * DAY_MS;
    let is_full = settings.events_max_bytes.is_some_and(|max| size_bytes >= max / 10 * 9);
    if is_full && !is_kept {
        let todo = format!(
            "older ones are deleted before their {days} days are over; raise {EVENTS_BYTES} to keep more"
        );
        return Ok(Finding::warning(check, found, todo));
    }
    Ok(Finding::ok(check, found))
}

/// Whether the disk of an embedded server has room for events.
pub fn disk(settings: &Settings) -> Option<Finding> {
    let (check, free) = ("events-disk", event_space::free_bytes(settings)?);
    let reserve = size(settings.events_reserve_bytes);
    let found = format!("the disk has {} free; events are written down to {reserve}", size(free));
    Some(match event_space::shortage(settings) {
        None => Finding::ok(check, found),
        Some(_) => {
            let todo = format!(
                "analytics lack the events of this time: free some of the disk, or lower {EVENTS_BYTES} or {EVENTS_RESERVE}"
            );
            Finding::problem(check, found, todo)
        }
    })
}

fn shown(at: Timestamp) -> String {
    let stamp = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
    stamp.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// Whether analytics queries are answered by a role that can do nothing else; `is_set` where one is named.
pub async fn analytics_role(events: &EventStore, is_set: bool) -> Result<Finding> {
    let check = "analytics-role";
    let Some(role) = events.analytics_role().await? else {
        return Ok(Finding::ok(check, "analytics queries are not answered by Postgres"));
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
        "can read or change tables other than those of events"
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
    Ok(Finding::warning(check, found, format!("take that from the role; {todo}")))
}

/// For how long they are kept.
pub fn retention(kept: &RetentionSettings) -> Finding {
    let days = |kept: &Retention| {
        let Retention { raw, minute, hour, day, month } = kept;
        format!("{raw} days, sums {minute}, {hour}, {day}, {month}")
    };
    let (verifications, ratelimits) = (days(&kept.verifications), days(&kept.ratelimits));
    let found = format!(
        "verifications {verifications}; checks of the limiter {ratelimits} (per minute, hour, day and month)"
    );
    Finding::ok("retention", found)
}
