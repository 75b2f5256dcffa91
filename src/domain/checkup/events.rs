//! What happened: whether it is written down, and for how long.

use super::{Finding, ago, count, size};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::model::{Kept, Retention};
use crate::store::Events;
use crate::store::clickhouse::ClickHouse;

/// After how long a batch should have been summed up.
const LATE_MS: i64 = 10 * 60_000;

/// After how long an event should have arrived in ClickHouse.
const UNDELIVERED_MS: i64 = 5 * 60_000;

/// How far they are.
pub async fn state(events: &Events, now: Timestamp) -> Result<Finding> {
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
    events: &Events,
    clickhouse: &ClickHouse,
    now: Timestamp,
) -> Result<Finding> {
    let waiting = events.read_own().await?.undelivered().await?;
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
            let todo = "see \"Events do not arrive\" in docs/operating.md; KEYWARD_CLICKHOUSE_URL names it";
            Finding::problem("clickhouse", format!("{failed}; {told}"), todo)
        }
        Ok(version) if waiting.is_some() && age_ms > UNDELIVERED_MS => {
            let todo = "look in the servers' logs for \"cannot deliver events\"";
            Finding::warning("clickhouse", format!("version {version} answers; {told}"), todo)
        }
        Ok(version) => Finding::ok("clickhouse", format!("version {version} answers; {told}")),
    })
}

/// For how long they are kept.
pub fn retention(kept: &Kept) -> Finding {
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
