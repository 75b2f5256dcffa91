//! Reads announcements, and announces the outcome of changes whose writers do not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::context::change_log::LogPass;
use domain::context::feed::{Announcement, FeedReading, FeedReport};
use domain::context::feed_reader::FeedReader;
use domain::context::{Context, Regions};
use foundation::clock::Monotonic;
use foundation::distance::CALL_TIMEOUT_MAX;
use foundation::error::Result;
use limiter::redis::{FeedReadResult, RedisCounters};
use store::{Intent, LogHead};
use tokio::sync::{Semaphore, mpsc};

const RECONNECT_DELAY: Duration = Duration::from_millis(250);
/// How often Redis is pinged when there is nothing to announce.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of announcements on their way to another region. One more is left to the change log.
const FORWARDED_MAX: usize = 256;

/// Reads announcements until the task is stopped.
pub async fn subscribe_to_changes(context: Arc<Context>) {
    let Some(redis) = &context.redis else { return };
    let mut reader = FeedReader::new(Monotonic::now());
    loop {
        if let Err(e) = read_new_changes(&context, redis, &mut reader).await {
            tracing::warn!(error = %e, "failed to read the change feed: {e}");
        }
        reader.record_failure(Monotonic::now(), &context.feed_state, &context.freshness);
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

async fn read_new_changes(
    context: &Context,
    redis: &RedisCounters,
    reader: &mut FeedReader,
) -> Result<()> {
    let mut connection = redis.connect_feed().await?;
    let Context { feed_state, freshness, .. } = context;
    loop {
        let Some(from) = reader.position() else {
            reader.begin_at(connection.get_or_create_end().await?, feed_state);
            continue;
        };
        let began = Monotonic::now();
        let others = feed_state.other_replicas.load_full();
        let result =
            connection.read(from, (&context.replica_id, &others), feed_state.is_proof()).await?;
        if result == FeedReadResult::Gap {
            tracing::info!("detected a gap in the change feed");
        }
        reader.apply_result(result, (began, Monotonic::now()), feed_state, freshness);
    }
}

/// Publishes announcements in every region, and pings Redis every second when there are none.
pub async fn publish_changes(context: Arc<Context>, mut announcements: mpsc::Receiver<String>) {
    let Some(redis) = &context.redis else { return };
    let forwarded = Arc::new(Semaphore::new(FORWARDED_MAX));
    loop {
        let result = match tokio::time::timeout(PING_INTERVAL, announcements.recv()).await {
            Ok(Some(text)) => {
                let announcement = Announcement::parse(&text);
                let older_text = announcement.as_ref().and_then(Context::text_for_older_replicas);
                forward(&context, &forwarded, &text, older_text);
                redis.publish(&text, older_text).await.map(drop)
            }
            Ok(None) => return,
            Err(_) => redis.connect(CALL_TIMEOUT_MAX).await,
        };
        context.redis_reachable.store(result.is_ok(), Ordering::Relaxed);
        if let Err(e) = result {
            tracing::warn!(error = %e, "failed to publish changes: {e}");
        }
    }
}

/// Publishes an announcement in the other regions, without waiting for them.
fn forward(
    context: &Arc<Context>,
    forwarded: &Arc<Semaphore>,
    text: &str,
    older_text: Option<&str>,
) {
    for (name, other) in context.regions.iter().flat_map(Regions::others) {
        let Ok(permit) = forwarded.clone().try_acquire_owned() else { return };
        let (name, other) = (name.to_owned(), other.clone());
        let (text, older_text) = (text.to_owned(), older_text.map(str::to_owned));
        tokio::spawn(async move {
            if let Err(e) = other.publish(&text, older_text.as_deref()).await {
                tracing::debug!(error = %e, region = name, "failed to publish a change in {name}: {e}");
            }
            drop(permit);
        });
    }
}

/// Updates the database, after the change log has been read, with what it lacks about this replica: the announcements
/// that it relies on, and the intents that it has. Returns whether the log should be read again soon.
pub async fn report_feed_state(
    context: &Context,
    reading: Option<&FeedReading>,
    pass: &LogPass,
) -> Result<bool> {
    let report = context.redis.as_ref().and_then(|_| FeedReport::new(reading, pass));
    let Some(report) = report else { return Ok(false) };
    if !report.is_empty() {
        let mut tx = context.store.store()?.begin_reserved().await?;
        if let Some(era) = report.era {
            tx.set_replica_feed(&context.replica_id, era, context.grace_ms()).await?;
        }
        if !report.intents.is_empty() {
            publish_found_intents(context, report.intents).await;
            tx.acknowledge_intents(&context.replica_id, report.intents).await?;
        }
        tx.commit().await?;
    }
    let is_pending =
        reading.is_some_and(|reading| context.feed_state.confirm_reading(reading, &pass.head));
    Ok(report.era.is_some() || is_pending)
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
        let is_committed = committed.contains(position);
        match Announcement::find_result(*position, intent, is_committed, head) {
            Some(result) if result.apply_to(&context.freshness) => {
                context.queue_announcement(result).await;
            }
            Some(_) => {}
            None => context.freshness.intents.record_search(*position, head.next),
        }
    }
    Ok(())
}
