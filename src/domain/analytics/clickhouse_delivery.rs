//! From Keyward's own database to ClickHouse: events as they come, and the sums of days that are over.
//!
//! See [`deliveries`](store::deliveries) for how each event comes to count once.

use std::sync::atomic::{AtomicBool, Ordering};

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::{EventKind, RollupUnit};
use store::clickhouse::{ClickHouse, ClickHouseError};
use store::outbox::{ClaimedBatch, DayRollup};

use crate::app::App;

/// How many batches one delivery has at most.
const BATCHES_MAX: usize = 10;
/// For how long a replica has batches in hand: longer than it can take to send them.
const CLAIM_TTL_MS: i64 = 90_000;
/// For how long batches are left alone that ClickHouse has refused.
const REFUSED_MS: i64 = 60_000;
/// For how long a replica has a day in hand.
const DAY_HELD_MS: i64 = 1_800_000;
/// How long after its end a day is summed up. What comes later has it summed up once more.
const DAY_OVER_MS: i64 = 3_600_000;
/// How long void deliveries are remembered at least: nothing of them is still on its way.
const VOID_MS: i64 = DAY_MS;
const DAY_MS: i64 = 86_400_000;

/// What a replica knows of ClickHouse.
#[derive(Debug, Default)]
pub struct DeliveryState {
    has_tables: AtomicBool,
    /// Whether it has refused what was last sent.
    was_refused: AtomicBool,
}

/// Delivers what waits, where there is a ClickHouse. What fails is delivered later.
pub async fn deliver(app: &App) -> Result<()> {
    let Some(clickhouse) = app.events.clickhouse() else { return Ok(()) };
    let outcome = deliver_all(app, clickhouse).await;
    let waiting = app.events.read_local().await?.undelivered().await?;
    let age_ms = if waiting.events == 0 { 0 } else { app.clock.now().0 - waiting.since.0 };
    let metrics = &app.metrics.events;
    metrics.undelivered.set(waiting.events);
    metrics.undelivered_seconds.set(age_ms.max(0) / 1_000);
    outcome
}

async fn deliver_all(app: &App, clickhouse: &ClickHouse) -> Result<()> {
    let DeliveryState { has_tables, was_refused } = &app.delivery_state;
    if !has_tables.load(Ordering::Relaxed) {
        clickhouse.make_tables().await?;
        has_tables.store(true, Ordering::Relaxed);
    }
    while app.events.read_local().await?.undelivered().await?.events > 0 {
        // What was refused together is sent alone, so that one batch does not hold up the others.
        let most = if was_refused.load(Ordering::Relaxed) { 1 } else { BATCHES_MAX };
        let now = app.clock.now();
        let mut tx = app.events.begin().await?;
        let delivery = tx.begin_delivery(now).await?;
        let batches = tx.claim_batches(delivery, now, now.plus_ms(CLAIM_TTL_MS), most).await?;
        if batches.is_empty() {
            // All are in somebody's hands.
            return Ok(());
        }
        tx.commit().await?;
        let sent = send(clickhouse, delivery, &batches).await;
        was_refused.store(matches!(sent, Err(ClickHouseError::Refused(..))), Ordering::Relaxed);
        finish_delivery(app, delivery, batches.len(), sent).await?;
    }
    Ok(())
}

async fn finish_delivery(
    app: &App,
    delivery: i64,
    batches: usize,
    sent: std::result::Result<(), ClickHouseError>,
) -> Result<()> {
    let mut tx = app.events.begin().await?;
    let Err(failed) = sent else {
        if tx.confirm_delivery(delivery, batches).await? {
            return tx.commit().await;
        }
        tracing::warn!("delivery {delivery} took so long that its events were delivered anew");
        return Ok(());
    };
    let now = app.clock.now();
    let again = if failed.is_outage() { now } else { now.plus_ms(REFUSED_MS) };
    tx.release_batches(delivery, again, matches!(failed, ClickHouseError::Away(_))).await?;
    tx.commit().await?;
    Err(failed.into())
}

/// Says that ClickHouse is away only if nothing has reached it.
async fn send(
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
        let lines = named(lines, delivery);
        if !lines.is_empty() {
            clickhouse.insert(kind.table(), lines).await.map_err(|failed| match failed {
                ClickHouseError::Away(cause) if has_sent => ClickHouseError::Broken(cause),
                failed => failed,
            })?;
            has_sent = true;
        }
    }
    Ok(())
}

/// The objects with the delivery that they come with.
fn named<'a>(lines: impl Iterator<Item = &'a str>, delivery: i64) -> String {
    let begin = format!("{{\"delivery\":{delivery},");
    let mut named = String::new();
    for line in lines {
        named.push_str(&begin);
        named.push_str(line.strip_prefix('{').unwrap_or(line));
        named.push('\n');
    }
    named
}

/// Sums up days that are over, drops what is no longer kept, and cleans up after deliveries that broke off.
pub async fn keep(app: &App) -> Result<()> {
    let Some(clickhouse) = app.events.clickhouse() else { return Ok(()) };
    if !app.delivery_state.has_tables.load(Ordering::Relaxed) {
        return Ok(());
    }
    while let Some(day) = take_day(app).await? {
        for kind in EventKind::ALL {
            clickhouse.sum_up_day(kind, &day).await?;
        }
        let mut tx = app.events.begin().await?;
        tx.complete_day(&day, app.clock.now()).await?;
        tx.commit().await?;
    }
    drop_old(app, clickhouse).await?;
    clean_up(app, clickhouse).await
}

async fn take_day(app: &App) -> Result<Option<DayRollup>> {
    let now = app.clock.now();
    let days = EventKind::ALL.map(|kind| app.settings.kept.of(kind).raw).into_iter().min();
    let kept_since = kept_since(now, days.unwrap_or(0));
    let (over, held_until) = (now.plus_ms(-DAY_OVER_MS), now.plus_ms(DAY_HELD_MS));
    let mut tx = app.events.begin().await?;
    let day = tx.claim_day(now, over, kept_since, held_until).await?;
    tx.commit().await?;
    Ok(day)
}

/// The first day that is kept as a whole.
fn kept_since(now: Timestamp, days: u32) -> Timestamp {
    RollupUnit::Day.next(now.plus_ms(-i64::from(days) * DAY_MS))
}

async fn drop_old(app: &App, clickhouse: &ClickHouse) -> Result<()> {
    let now = app.clock.now();
    let summed_until = app.events.read_local().await?.delivered().await?.summed_until;
    let mut oldest = now;
    for kind in EventKind::ALL {
        let kept = app.settings.kept.of(kind);
        // What has not been summed up stays.
        let events = now.plus_ms(-i64::from(kept.raw) * DAY_MS).min(Timestamp(summed_until));
        clickhouse.drop_events(kind, events).await?;
        let hours = now.plus_ms(-i64::from(kept.hour.max(kept.day).max(kept.month)) * DAY_MS);
        clickhouse.drop_hours(kind, hours).await?;
        oldest = oldest.min(hours);
    }
    let mut tx = app.events.begin().await?;
    tx.forget_days(oldest).await?;
    tx.commit().await
}

async fn clean_up(app: &App, clickhouse: &ClickHouse) -> Result<()> {
    let before = app.clock.now().plus_ms(-VOID_MS);
    let mut void = app.events.read_local().await?.void_before(before).await?;
    if void.is_empty() {
        return Ok(());
    }
    let there = clickhouse.delete_deliveries(&void).await?;
    void.retain(|id| !there.contains(id));
    let mut tx = app.events.begin().await?;
    tx.forget_deliveries(&void).await?;
    tx.commit().await
}
