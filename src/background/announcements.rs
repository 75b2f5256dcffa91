//! Reads announcements, and announces the outcome of changes whose writers do not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::context::Context;
use domain::context::feed::{Announcement, FeedReading, FeedState};
use foundation::clock::Stopwatch;
use foundation::error::Result;
use foundation::fault_injection::Safeguard;
use limiter::redis::{FeedPosition, FeedReadResult, RedisCounters};
use store::{Intent, LogHead};
use tokio::sync::mpsc;

const RECONNECT_DELAY: Duration = Duration::from_millis(250);
/// How long a reader may receive no reply from Redis before it discards its position, if the database is reachable.
const POSITION_TIMEOUT: Duration = Duration::from_secs(3);
/// How often Redis is pinged when there is nothing to announce.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// Reads announcements until the task is stopped.
pub async fn subscribe_to_changes(context: Arc<Context>) {
    let Some(redis) = &context.redis else { return };
    // The next connection continues where the last one stopped.
    let mut position = None;
    let mut last_reply = Stopwatch::new();
    loop {
        if let Err(e) = read_new_changes(&context, redis, &mut position, &mut last_reply).await {
            tracing::warn!(error = %e, "failed to read the change feed: {e}");
        }
        // While the database is reachable, continuing there has no benefit, and writers would wait for this replica.
        if last_reply.elapsed() > POSITION_TIMEOUT && context.freshness.is_database_reachable() {
            context.feed_state.end_reading();
            position = None;
        }
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

async fn read_new_changes(
    context: &Context,
    redis: &RedisCounters,
    position: &mut Option<FeedPosition>,
    last_reply: &mut Stopwatch,
) -> Result<()> {
    let mut connection = redis.connect_feed().await?;
    loop {
        let Some(from) = position else {
            let end = connection.get_or_create_end().await?;
            context.feed_state.begin_reading(&end.era);
            *position = Some(end);
            continue;
        };
        let began_ms = context.freshness.now_ms();
        let others = context.feed_state.other_replicas.load_full();
        let result = connection
            .read(from, (&context.replica_id, &others), context.feed_state.is_proof())
            .await?;
        *last_reply = Stopwatch::new();
        match result {
            FeedReadResult::Gap => {
                tracing::info!("detected a gap in the change feed");
                context.feed_state.end_reading();
                *position = None;
            }
            FeedReadResult::Announcements {
                texts,
                position: to,
                is_end: is_all,
                reader_ages: ages,
            } => {
                for text in &texts {
                    apply_announcement(context, text);
                }
                *position = Some(to);
                let majority_age = match Safeguard::Majority.is_disabled() {
                    true => Some(Duration::ZERO),
                    false => FeedState::majority_age(&ages),
                };
                if is_all
                    && context.feed_state.is_proof()
                    && let Some(age) = majority_age
                {
                    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
                    context.freshness.record_announcements_read(began_ms.saturating_sub(age_ms));
                }
            }
        }
    }
}

fn apply_announcement(context: &Context, text: &str) {
    match Announcement::parse(text) {
        Some(Announcement::Intent { position, cache_tags }) => {
            context.freshness.intents.open(position, cache_tags);
        }
        Some(Announcement::Committed { position, cache_tags }) => {
            cache_tags
                .lines()
                .for_each(|cache_tag| context.freshness.record_invalidation_text(cache_tag));
            context.freshness.intents.close(position);
        }
        Some(Announcement::RolledBack { position }) => {
            context.freshness.intents.close(position);
        }
        None => {}
    }
}

/// Publishes announcements, and pings Redis every second when there are none.
pub async fn publish_changes(context: Arc<Context>, mut announcements: mpsc::Receiver<String>) {
    let Some(redis) = &context.redis else { return };
    loop {
        let result = match tokio::time::timeout(PING_INTERVAL, announcements.recv()).await {
            Ok(Some(text)) => {
                let announcement = Announcement::parse(&text);
                let older_text = announcement.as_ref().and_then(Context::text_for_older_replicas);
                redis.publish(&text, older_text).await.map(drop)
            }
            Ok(None) => return,
            Err(_) => redis.ping().await,
        };
        context.redis_reachable.store(result.is_ok(), Ordering::Relaxed);
        if let Err(e) = result {
            tracing::warn!(error = %e, "failed to publish changes: {e}");
        }
    }
}

/// Updates the database, after the change log has been read, with what it lacks about this replica: the announcements
/// that it relies on, and the intents that it has. Returns whether the log should be read again soon.
pub async fn report_feed_state(
    context: &Context,
    reading: Option<&FeedReading>,
    head: &LogHead,
    intents: &[i64],
) -> Result<bool> {
    if context.redis.is_none() || head.seen_at.is_none() {
        return Ok(false);
    }
    let era = reading.map_or("", |reading| &*reading.era);
    let is_recorded = head.feed.as_deref() == Some(era);
    if !is_recorded || !intents.is_empty() {
        let mut tx = context.store.store()?.begin_reserved().await?;
        if !is_recorded {
            tx.set_replica_feed(&context.replica_id, era, context.grace_ms()).await?;
        }
        if !intents.is_empty() {
            publish_found_intents(context, intents).await;
            tx.acknowledge_intents(&context.replica_id, intents).await?;
        }
        tx.commit().await?;
    }
    let is_pending =
        reading.is_some_and(|reading| context.feed_state.confirm_reading(reading, head));
    Ok(!is_recorded || is_pending)
}

/// Announces intents that were found in the change log. Replicas that cannot read it rely on the announcements of the
/// Redis that this replica uses, and the writer may use another one.
async fn publish_found_intents(context: &Context, intents: &[i64]) {
    let Some(redis) = context.redis.as_ref().filter(|redis| !redis.is_breaker_open()) else {
        return;
    };
    let open = context.freshness.intents.list();
    for (position, intent) in open.iter().filter(|(position, _)| intents.contains(position)) {
        let announcement = Announcement::Intent { position: *position, cache_tags: &intent.tags };
        if let Err(e) = redis.publish(&announcement.to_string(), None).await {
            tracing::debug!(error = %e, "failed to publish the intent of another replica: {e}");
        }
    }
}

/// Determines from the change log the outcome of intents that were open before it was read, and announces it: their
/// writers may have died.
pub async fn resolve_intents(
    context: &Context,
    open_intents: &[(i64, Intent)],
    head: &LogHead,
) -> Result<()> {
    if open_intents.is_empty() {
        return Ok(());
    }
    let positions: Vec<_> = open_intents.iter().map(|(position, _)| *position).collect();
    let mut reader = context.store.store()?.read_reserved().await?;
    let committed = reader.list_existing_positions(&positions).await?;
    drop(reader);
    for (position, intent) in open_intents {
        let position = *position;
        let has_ended = intent.first_search.is_some_and(|next| head.ended_below >= next);
        let cache_tags = &*intent.tags;
        let result = if committed.contains(&position) {
            cache_tags
                .lines()
                .for_each(|cache_tag| context.freshness.record_invalidation_text(cache_tag));
            Announcement::Committed { position, cache_tags }
        } else if has_ended {
            Announcement::RolledBack { position }
        } else {
            context.freshness.intents.record_search(position, head.next);
            continue;
        };
        if context.freshness.intents.close(position) {
            context.queue_announcement(result).await;
        }
    }
    Ok(())
}
