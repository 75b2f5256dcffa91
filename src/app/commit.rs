//! Committing a change such that every replica learns of it, or none of it is done.
//!
//! A replica that relies on the change log finds the change there. One that relies on announcements
//! must get one *before* the commit, whatever happens to the writer afterwards: over Redis or, where
//! that does not reach it, as an intent in the change log, which it acknowledges. Where neither
//! reaches every such replica, nothing is committed.

use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::traces;
use limiter::redis::RedisCounters;
use store::freshness::ALL;
use store::{Store, Tx};

use super::App;
use super::feed::Announcement;

/// How many subjects one announcement names; more are everything.
const SUBJECTS_MAX: usize = 1_000;
/// How long is tried to announce an intent, while replicas have time to acknowledge it in the change log, which they read
/// twice a second.
const REACHED_WITHIN: Duration = Duration::from_secs(2);
const ASK_EVERY: Duration = Duration::from_millis(50);

impl App {
    /// Commits, and tells every cache what has changed: its own before this returns. Fails with
    /// [`Error::Unreached`], and changes nothing, where a replica could not learn of it.
    pub async fn commit(&self, tx: Tx) -> Result<()> {
        self.commit_in(self.store.store()?, tx).await
    }

    /// As [`App::commit`], in a store that is not open to requests yet.
    pub async fn commit_in(&self, store: &Store, mut tx: Tx) -> Result<()> {
        let Some(position) = tx.log_changes().await? else {
            return traces::step("database.commit", tx.commit()).await.map(drop);
        };
        let Some(redis) = &self.redis else {
            let changed = traces::step("database.commit", tx.commit()).await?;
            for subject in &changed {
                self.freshness.record_invalidation(subject);
            }
            return Ok(());
        };
        let subjects = subjects(&tx);
        // Until the result is known, whatever ends this: the change log is asked for it then.
        self.freshness.intents.open(position, &subjects);
        if let Err(unreached) =
            self.reach_replicas(store, redis, &mut tx, position, &subjects).await
        {
            drop(tx);
            self.freshness.intents.close(position);
            self.announce(Announcement::Undone { position }).await;
            return Err(unreached);
        }
        Safeguard::Commit.die();
        let committed = traces::step("database.commit", tx.commit()).await;
        subjects.lines().for_each(|subject| self.freshness.changed_text(subject));
        // Where the commit failed, nobody knows whether it was done.
        committed?;
        Safeguard::Result.die();
        self.freshness.intents.close(position);
        self.announce(Announcement::Committed { position, subjects: &subjects }).await;
        Ok(())
    }

    /// Sees to it that every replica that relies on announcements has got the intent.
    async fn reach_replicas(
        &self,
        store: &Store,
        redis: &RedisCounters,
        tx: &mut Tx,
        position: i64,
        subjects: &str,
    ) -> Result<()> {
        let intent = Announcement::Intent { position, subjects }.to_string();
        let mut era = match redis.is_breaker_open() {
            true => String::new(),
            false => announce_intent(redis, &intent).await,
        };
        if Safeguard::Reach.is_disabled() || self.unreached(tx, &era, position).await?.is_empty() {
            return Ok(());
        }
        // Not one of those that all who are here hold already.
        let mut beside = store.begin_reserved().await?;
        beside.insert_changes(std::slice::from_ref(&intent)).await?;
        beside.commit().await?;
        let since = Stopwatch::new();
        loop {
            // A busy machine misses the bound on a call now and then, and a change has more time than a verification.
            if era.is_empty() {
                era = announce_intent(redis, &intent).await;
            }
            let unreached = self.unreached(tx, &era, position).await?;
            if unreached.is_empty() {
                return Ok(());
            }
            if since.elapsed() >= REACHED_WITHIN {
                return Err(Error::Unreached(unreached.join(", ")));
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    async fn unreached(&self, tx: &mut Tx, era: &str, position: i64) -> Result<Vec<String>> {
        tx.unreached_replicas(&self.replica_id, era, position, self.grace_ms()).await
    }

    /// How long what is cached is good without the database.
    pub fn grace_ms(&self) -> i64 {
        i64::try_from(self.settings.database_grace_seconds * 1000).unwrap_or(i64::MAX)
    }

    /// Announces something by and by; a command, which has nobody who does it beside, at once.
    pub async fn announce(&self, announcement: Announcement<'_>) {
        let Err(unsent) = self.announcements.try_send(announcement.to_string()) else { return };
        // What is lost is found in the change log, and announced by whoever finds it.
        if let Some(redis) = &self.redis
            && let Err(e) =
                redis.publish(&unsent.into_inner(), Self::older_text(&announcement)).await
        {
            tracing::debug!(error = %e, "cannot announce a change: {e}");
        }
    }

    /// What replicas of the version before this understand of an announcement.
    pub fn older_text<'a>(announcement: &Announcement<'a>) -> Option<&'a str> {
        match announcement {
            Announcement::Committed { subjects, .. } => Some(subjects),
            Announcement::Intent { .. } | Announcement::Undone { .. } => None,
        }
    }
}

/// The era of the feed in which the intent stands. Empty: it could not be announced.
async fn announce_intent(redis: &RedisCounters, intent: &str) -> String {
    redis.publish(intent, None).await.unwrap_or_else(|e| {
        tracing::debug!(error = %e, "cannot announce a change: {e}");
        String::new()
    })
}

/// What a transaction changes, a line each.
fn subjects(tx: &Tx) -> String {
    match tx.changes() {
        many if many.len() > SUBJECTS_MAX => format!("{ALL}\n"),
        few => few.iter().flat_map(|subject| [subject.to_string(), "\n".to_owned()]).collect(),
    }
}
