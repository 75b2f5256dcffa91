//! What happened: whether it is written down, and for how long.

use super::{Finding, ago, count, size};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::model::{Kept, Retention};
use crate::store::Events;

/// After how long a batch should have been summed up.
const LATE_MS: i64 = 10 * 60_000;

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
