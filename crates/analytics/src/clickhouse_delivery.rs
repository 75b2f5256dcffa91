//! Delivers events from Keyward's own database to ClickHouse, and rolls up the days that are over.
//!
//! [`outbox`](store::outbox) describes why each event counts once.

use std::sync::atomic::{AtomicBool, Ordering};

use foundation::clock::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use foundation::error::Result;
use foundation::model::{EventKind, RollupUnit};
use store::clickhouse::{ClickHouse, ClickHouseError};
use store::outbox::{ClaimedBatch, DayRollup};

use crate::Analytics;

/// The maximum number of batches in a delivery.
const BATCHES_MAX: usize = 10;
/// The maximum size of the batches in a delivery, unless it has only one.
const DELIVERY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long a replica holds its claim on batches: longer than it can take to send them.
const CLAIM_TTL_MS: i64 = 90_000;
/// The delay before batches that ClickHouse rejected are sent again.
const REJECTED_RETRY_MS: i64 = MINUTE_MS;
/// How long a replica holds its claim on a day.
const DAY_CLAIM_TTL_MS: i64 = 30 * MINUTE_MS;
/// The delay after its end before a day is rolled up. Events that arrive later cause another rollup of the day.
const DAY_ROLLUP_DELAY_MS: i64 = HOUR_MS;
/// The minimum time that void deliveries are remembered. After it, no rows of them are still on the way.
const VOID_RETENTION_MS: i64 = DAY_MS;

/// Stores what this replica knows about ClickHouse.
#[derive(Debug, Default)]
pub struct DeliveryState {
    has_tables: AtomicBool,
    /// Whether the last delivery that reached ClickHouse failed: it was rejected, or its connection was lost or timed out.
    has_failed: AtomicBool,
}

/// Delivers pending batches if ClickHouse is configured. Batches that fail are delivered later.
pub async fn deliver(analytics: &Analytics) -> Result<()> {
    let Some(clickhouse) = analytics.event_store.clickhouse() else { return Ok(()) };
    let outcome = deliver_all(analytics, clickhouse).await;
    let undelivered = analytics.event_store.read_local().await?.count_undelivered().await?;
    let age_ms =
        if undelivered.events == 0 { 0 } else { analytics.clock.now().0 - undelivered.since.0 };
    let metrics = &analytics.metrics;
    metrics.undelivered_events.set(undelivered.events);
    metrics.undelivered_seconds.set(age_ms.max(0) / 1_000);
    outcome
}

async fn deliver_all(analytics: &Analytics, clickhouse: &ClickHouse) -> Result<()> {
    let DeliveryState { has_tables, has_failed } = &analytics.delivery_state;
    if !has_tables.load(Ordering::Relaxed) {
        clickhouse.create_tables().await?;
        has_tables.store(true, Ordering::Relaxed);
    }
    while analytics.event_store.read_local().await?.count_undelivered().await?.events > 0 {
        // Batches that failed together are sent one by one, so that neither one bad batch nor their size blocks them.
        let batches_max = if has_failed.load(Ordering::Relaxed) { 1 } else { BATCHES_MAX };
        let now = analytics.clock.now();
        let mut tx = analytics.event_store.begin().await?;
        let delivery = tx.begin_delivery(now).await?;
        let until = now.plus_ms(CLAIM_TTL_MS);
        let batches =
            tx.claim_batches(delivery, now, until, batches_max, DELIVERY_BYTES_MAX).await?;
        if batches.is_empty() {
            // Other replicas have claimed all batches.
            return Ok(());
        }
        tx.commit().await?;
        let sent = send_batches(clickhouse, delivery, &batches).await;
        if !matches!(sent, Err(ClickHouseError::Unreachable(_))) {
            has_failed.store(sent.is_err(), Ordering::Relaxed);
        }
        finish_delivery(analytics, delivery, batches.len(), sent).await?;
    }
    Ok(())
}

async fn finish_delivery(
    analytics: &Analytics,
    delivery: i64,
    batches: usize,
    sent: std::result::Result<(), ClickHouseError>,
) -> Result<()> {
    let mut tx = analytics.event_store.begin().await?;
    let Err(failed) = sent else {
        if tx.confirm_delivery(delivery, batches).await? {
            return tx.commit().await;
        }
        tracing::warn!(
            delivery,
            "voided a delivery that took too long: its events were sent again"
        );
        return Ok(());
    };
    let now = analytics.clock.now();
    let retry_at = if failed.is_outage() { now } else { now.plus_ms(REJECTED_RETRY_MS) };
    tx.release_batches(delivery, retry_at, matches!(failed, ClickHouseError::Unreachable(_)))
        .await?;
    tx.commit().await?;
    Err(failed.into())
}

/// Sends batches. Reports ClickHouse as unreachable only if no rows of the delivery have reached it.
async fn send_batches(
    clickhouse: &ClickHouse,
    delivery: i64,
    batches: &[ClaimedBatch],
) -> std::result::Result<(), ClickHouseError> {
    let mut has_sent = false;
    for kind in EventKind::ALL {
        let lines = batches.iter().flat_map(|batch| match kind {
            EventKind::Verifications => batch.verifications.lines(),
            EventKind::Ratelimits => batch.ratelimits.lines(),
        });
        let lines = add_delivery_id(lines, delivery);
        if !lines.is_empty() {
            clickhouse.insert(kind.table_name(), lines).await.map_err(|failed| match failed {
                ClickHouseError::Unreachable(cause) if has_sent => {
                    ClickHouseError::ConnectionLost(cause)
                }
                failed => failed,
            })?;
            has_sent = true;
        }
    }
    Ok(())
}

/// Adds the id of the delivery to each JSON object.
fn add_delivery_id<'a>(lines: impl Iterator<Item = &'a str>, delivery: i64) -> String {
    let begin = format!("{{\"delivery\":{delivery},");
    let mut lines_with_id = String::new();
    for line in lines {
        lines_with_id.push_str(&begin);
        lines_with_id.push_str(line.strip_prefix('{').unwrap_or(line));
        lines_with_id.push('\n');
    }
    lines_with_id
}

/// Rolls up the days that are over, drops data past its retention, and cleans up after deliveries that were
/// interrupted.
pub async fn maintain(analytics: &Analytics) -> Result<()> {
    let Some(clickhouse) = analytics.event_store.clickhouse() else { return Ok(()) };
    if !analytics.delivery_state.has_tables.load(Ordering::Relaxed) {
        return Ok(());
    }
    while let Some(day) = claim_day(analytics).await? {
        for kind in EventKind::ALL {
            clickhouse.roll_up_day(kind, &day).await?;
        }
        let mut tx = analytics.event_store.begin().await?;
        tx.complete_day(&day, analytics.clock.now()).await?;
        tx.commit().await?;
    }
    drop_expired(analytics, clickhouse).await?;
    delete_void_deliveries(analytics, clickhouse).await
}

async fn claim_day(analytics: &Analytics) -> Result<Option<DayRollup>> {
    let now = analytics.load_retention_time().await?;
    let days =
        EventKind::ALL.map(|kind| analytics.retention.for_kind(kind).raw_days).into_iter().min();
    let retained_since = first_retained_day(now, days.unwrap_or(0));
    let (over_before, claimed_until) =
        (now.plus_ms(-DAY_ROLLUP_DELAY_MS), now.plus_ms(DAY_CLAIM_TTL_MS));
    let mut tx = analytics.event_store.begin().await?;
    let day = tx.claim_day(now, over_before, retained_since, claimed_until).await?;
    tx.commit().await?;
    Ok(day)
}

/// Returns the first day that is retained completely.
fn first_retained_day(now: Timestamp, days: u32) -> Timestamp {
    RollupUnit::Day.start_of_next(now.plus_ms(-i64::from(days) * DAY_MS))
}

async fn drop_expired(analytics: &Analytics, clickhouse: &ClickHouse) -> Result<()> {
    let now = analytics.load_retention_time().await?;
    let rolled_up_until =
        analytics.event_store.read_local().await?.delivery_snapshot().await?.rolled_up_until_ms;
    let mut oldest = now;
    for kind in EventKind::ALL {
        let retention = analytics.retention.for_kind(kind);
        // Events that are not rolled up yet are not dropped.
        let events =
            now.plus_ms(-i64::from(retention.raw_days) * DAY_MS).min(Timestamp(rolled_up_until));
        clickhouse.drop_event_partitions(kind, events).await?;
        let hours = now.plus_ms(
            -i64::from(retention.hour_days.max(retention.day_days).max(retention.month_days))
                * DAY_MS,
        );
        clickhouse.drop_hour_partitions(kind, hours).await?;
        oldest = oldest.min(hours);
    }
    let mut tx = analytics.event_store.begin().await?;
    tx.delete_days(oldest).await?;
    tx.commit().await
}

async fn delete_void_deliveries(analytics: &Analytics, clickhouse: &ClickHouse) -> Result<()> {
    let before = analytics.load_retention_time().await?.plus_ms(-VOID_RETENTION_MS);
    let mut void = analytics.event_store.read_local().await?.list_void_deliveries(before).await?;
    if void.is_empty() {
        return Ok(());
    }
    let remaining = clickhouse.delete_deliveries(&void).await?;
    void.retain(|id| !remaining.contains(id));
    let mut tx = analytics.event_store.begin().await?;
    tx.delete_deliveries(&void).await?;
    tx.commit().await
}
