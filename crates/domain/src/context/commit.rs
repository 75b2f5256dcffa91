//! Commits a change such that either every replica learns of it, or nothing is changed.
//!
//! A replica that relies on the change log finds the change there. One that relies on announcements must receive one
//! *before* the commit, whatever happens to the writer afterwards: over Redis or, if Redis does not reach it, as an
//! intent in the change log, which it acknowledges. If neither reaches every such replica, nothing is committed.

use foundation::clock::Monotonic;
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::traces;
use limiter::redis::RedisCounters;
use store::freshness::ALL_TAG;
use store::{Store, Tx};

use super::Context;
use super::feed::Announcement;
use super::reach::{ReachStep, ReplicaReach};

/// The maximum number of cache tags in one announcement; more are announced as a change of everything.
const ANNOUNCED_TAGS_MAX: usize = 1_000;

impl Context {
    /// Commits, and invalidates every cache for what has changed: the local one before this returns. Fails with
    /// [`Error::ReplicasNotNotified`], and changes nothing, if a replica could not be notified.
    pub async fn commit(&self, tx: Tx) -> Result<()> {
        self.commit_to(self.store.store()?, tx).await
    }

    /// Like [`Context::commit`], for a store that is not open to requests yet.
    pub async fn commit_to(&self, store: &Store, mut tx: Tx) -> Result<()> {
        let Some(position) = tx.log_changes().await? else {
            return traces::step("database.commit", tx.commit()).await.map(drop);
        };
        let Some(redis) = &self.redis else {
            let changed = traces::step("database.commit", tx.commit()).await?;
            for cache_tag in &changed {
                self.freshness.record_invalidation(cache_tag);
            }
            return Ok(());
        };
        let tag_lines = tag_lines(&tx);
        // The intent stays open until the result is known, whatever ends this function: then the change log is queried
        // for it.
        self.freshness.intents.open(position, &tag_lines);
        if let Err(unreached) =
            self.reach_replicas(store, redis, &mut tx, position, &tag_lines).await
        {
            drop(tx);
            self.freshness.intents.close(position);
            self.queue_announcement(Announcement::RolledBack { position }).await;
            return Err(unreached);
        }
        Safeguard::Commit.abort_if_disabled();
        let committed = traces::step("database.commit", tx.commit()).await;
        if !Safeguard::OwnChange.is_disabled() {
            tag_lines.lines().for_each(|tag| self.freshness.record_invalidation_text(tag));
        }
        // If the commit failed, it is unknown whether it was applied.
        committed?;
        Safeguard::Result.abort_if_disabled();
        self.freshness.intents.close(position);
        self.queue_announcement(Announcement::Committed { position, cache_tags: &tag_lines }).await;
        Ok(())
    }

    /// Returns when every replica that relies on announcements has the intent.
    async fn reach_replicas(
        &self,
        store: &Store,
        redis: &RedisCounters,
        tx: &mut Tx,
        position: i64,
        cache_tags: &str,
    ) -> Result<()> {
        let intent = Announcement::Intent { position, cache_tags }.to_string();
        let mut reach = ReplicaReach::new(redis.is_breaker_open());
        let mut unreached = Vec::new();
        loop {
            match reach.next_step() {
                ReachStep::Publish => {
                    reach.record_published(self.publish_everywhere(redis, &intent, None).await);
                }
                ReachStep::ListUnreached if Safeguard::Reach.is_disabled() => return Ok(()),
                ReachStep::ListUnreached => {
                    unreached = self.list_unreached_replicas(tx, reach.eras(), position).await?;
                    reach.record_unreached(!unreached.is_empty(), Monotonic::now());
                }
                ReachStep::LogIntent => {
                    // A reserved connection, because requests that wait here may already hold all others.
                    let mut intent_tx = store.begin_reserved().await?;
                    intent_tx.insert_changes(std::slice::from_ref(&intent)).await?;
                    intent_tx.commit().await?;
                    reach.record_logged(Monotonic::now());
                }
                ReachStep::Pause(pause) => {
                    tokio::time::sleep(pause).await;
                    reach.try_again();
                }
                ReachStep::Commit => return Ok(()),
                ReachStep::RollBack => {
                    return Err(Error::ReplicasNotNotified(unreached.join(", ")));
                }
            }
        }
    }

    async fn list_unreached_replicas(
        &self,
        tx: &mut Tx,
        eras: (&[String], bool),
        position: i64,
    ) -> Result<Vec<String>> {
        tx.list_unreached_replicas(&self.replica_id, eras, position, self.grace_ms()).await
    }

    /// Returns how long cached values are valid without the database.
    pub fn grace_ms(&self) -> i64 {
        i64::try_from(self.settings.database_grace_seconds * 1000).unwrap_or(i64::MAX)
    }

    /// Queues an announcement for the background task. A CLI command has no such task and sends it immediately.
    pub async fn queue_announcement(&self, announcement: Announcement<'_>) {
        let Err(unsent) = self.announcements.try_send(announcement.to_string()) else { return };
        // A lost announcement is found in the change log, and announced by the replica that finds it.
        if let Some(redis) = &self.redis {
            let older_text = Self::text_for_older_replicas(&announcement);
            self.publish_everywhere(redis, &unsent.into_inner(), older_text).await;
        }
    }

    /// Returns the part of an announcement that replicas of the version before the feed understand.
    pub fn text_for_older_replicas<'a>(announcement: &Announcement<'a>) -> Option<&'a str> {
        match announcement {
            Announcement::Committed { cache_tags: subjects, .. } => Some(subjects),
            Announcement::Intent { .. } | Announcement::RolledBack { .. } => None,
        }
    }
}

/// Returns the cache tags that a transaction changes, one per line.
fn tag_lines(tx: &Tx) -> String {
    match tx.changed_tags() {
        many if many.len() > ANNOUNCED_TAGS_MAX => format!("{ALL_TAG}\n"),
        few => few.iter().flat_map(|cache_tag| [cache_tag.to_string(), "\n".to_owned()]).collect(),
    }
}
