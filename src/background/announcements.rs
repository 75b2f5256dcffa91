//! Reading announcements, and saying what has become of those whose writer does not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::error::Result;
use foundation::fault_injection::Safeguard;
use limiter::redis::{Found, Position, RedisCounters};
use store::{Intent, LogHead};
use tokio::sync::mpsc;

use crate::app::App;
use crate::app::feed::{Announcement, FeedState, Reading};

const RECONNECT_AFTER: Duration = Duration::from_millis(250);
/// After how long without an answer a reader that has the database does not mean to go on where it stopped.
const GIVE_UP_AFTER: Duration = Duration::from_secs(3);
/// How often Redis is asked whether it is there, when nothing is announced.
const PING_EVERY: Duration = Duration::from_secs(1);

/// Reads announcements, for ever.
pub async fn subscribe_to_changes(app: Arc<App>) {
    let Some(redis) = &app.redis else { return };
    // Where the last connection stopped, the next one goes on.
    let mut position = None;
    let mut answered = Stopwatch::new();
    loop {
        if let Err(e) = read_new_changes(&app, redis, &mut position, &mut answered).await {
            tracing::warn!(error = %e, "cannot read announcements: {e}");
        }
        // With the database at hand nothing is gained by going on there, and writers would wait for this replica.
        if answered.elapsed() > GIVE_UP_AFTER && app.freshness.is_database_reachable() {
            app.feed.lose();
            position = None;
        }
        tokio::time::sleep(RECONNECT_AFTER).await;
    }
}

async fn read_new_changes(
    app: &App,
    redis: &RedisCounters,
    position: &mut Option<Position>,
    answered: &mut Stopwatch,
) -> Result<()> {
    let mut connection = redis.read_feed().await?;
    loop {
        let Some(from) = position else {
            let end = connection.end().await?;
            app.feed.begin(&end.era);
            *position = Some(end);
            continue;
        };
        let began_ms = app.freshness.now_ms();
        let others = app.feed.others.load_full();
        let found = connection.read(from, (&app.replica_id, &others), app.feed.is_proof()).await?;
        *answered = Stopwatch::new();
        match found {
            Found::Gap => {
                tracing::info!("announcements may have been missed; the change log tells which");
                app.feed.lose();
                *position = None;
            }
            Found::News { texts, to, is_all, ages } => {
                for text in &texts {
                    hear(app, text);
                }
                *position = Some(to);
                let majority_age = match Safeguard::Majority.is_disabled() {
                    true => Some(Duration::ZERO),
                    false => FeedState::majority_age(&ages),
                };
                if is_all
                    && app.feed.is_proof()
                    && let Some(age) = majority_age
                {
                    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
                    app.freshness.proved_by_feed(began_ms.saturating_sub(age_ms));
                }
            }
        }
    }
}

fn hear(app: &App, text: &str) {
    match Announcement::parse(text) {
        Some(Announcement::Intent { position, subjects }) => {
            app.freshness.intents.open(position, subjects);
        }
        Some(Announcement::Committed { position, subjects }) => {
            subjects.lines().for_each(|subject| app.freshness.changed_text(subject));
            app.freshness.intents.close(position);
        }
        Some(Announcement::Undone { position }) => {
            app.freshness.intents.close(position);
        }
        None => {}
    }
}

/// Sends what is to be announced, and asks each second whether Redis is there.
pub async fn publish_changes(app: Arc<App>, mut waiting: mpsc::Receiver<String>) {
    let Some(redis) = &app.redis else { return };
    loop {
        let answered = match tokio::time::timeout(PING_EVERY, waiting.recv()).await {
            Ok(Some(text)) => {
                let older = Announcement::parse(&text);
                let older = older.as_ref().and_then(App::older_text);
                redis.publish(&text, older).await.map(drop)
            }
            Ok(None) => return,
            Err(_) => redis.ping().await,
        };
        app.redis_reachable.store(answered.is_ok(), Ordering::Relaxed);
        if let Err(e) = answered {
            tracing::warn!(error = %e, "cannot announce changes: {e}");
        }
    }
}

/// Tells the database, after the change log has been read, what it does not know of this replica: on which announcements it
/// relies, and which intents it has. Whether the log should be read once more, soon.
pub async fn report(
    app: &App,
    reading: Option<&Reading>,
    head: &LogHead,
    intents: &[i64],
) -> Result<bool> {
    if app.redis.is_none() || head.seen_at.is_none() {
        return Ok(false);
    }
    let era = reading.map_or("", |reading| &*reading.era);
    let is_told = head.feed.as_deref() == Some(era);
    if !is_told || !intents.is_empty() {
        let mut tx = app.store.store()?.begin_reserved().await?;
        if !is_told {
            tx.set_replica_feed(&app.replica_id, era, app.grace_ms()).await?;
        }
        if !intents.is_empty() {
            announce_found(app, intents).await;
            tx.acknowledge_intents(&app.replica_id, intents).await?;
        }
        tx.commit().await?;
    }
    let is_unsettled = reading.is_some_and(|reading| app.feed.confirm(reading, head));
    Ok(!is_told || is_unsettled)
}

/// Announces intents that were found in the change log: others that cannot read it rely on the announcements of the Redis
/// that this replica uses, and the writer may use another one.
async fn announce_found(app: &App, intents: &[i64]) {
    let Some(redis) = app.redis.as_ref().filter(|redis| !redis.is_breaker_open()) else { return };
    let open = app.freshness.intents.list();
    for (position, intent) in open.iter().filter(|(position, _)| intents.contains(position)) {
        let announcement = Announcement::Intent { position: *position, subjects: &intent.subjects };
        if let Err(e) = redis.publish(&announcement.to_string(), None).await {
            tracing::debug!(error = %e, "failed to announce a change that another replica makes: {e}");
        }
    }
}

/// Finds in the change log what has become of intents that were open before it was read, and announces it: their writers
/// may be gone.
pub async fn resolve(app: &App, open: &[(i64, Intent)], head: &LogHead) -> Result<()> {
    if open.is_empty() {
        return Ok(());
    }
    let positions: Vec<_> = open.iter().map(|(position, _)| *position).collect();
    let mut reader = app.store.store()?.read_reserved().await?;
    let committed = reader.changes_among(&positions).await?;
    drop(reader);
    for (position, intent) in open {
        let position = *position;
        let has_ended = intent.looked_for.is_some_and(|next| head.ended_below >= next);
        let subjects = &*intent.subjects;
        let result = if committed.contains(&position) {
            subjects.lines().for_each(|subject| app.freshness.changed_text(subject));
            Announcement::Committed { position, subjects }
        } else if has_ended {
            Announcement::Undone { position }
        } else {
            app.freshness.intents.look_for(position, head.next);
            continue;
        };
        if app.freshness.intents.close(position) {
            app.announce(result).await;
        }
    }
    Ok(())
}
