//! A replica: the program's own state machines of the change feed and its row cache, driven as `src/background` and
//! `Context::commit_to` drive them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::context::change_log::{ChangeLogReader, LogPass, LogReply, LogStep};
use domain::context::feed::{Announcement, FeedReading, FeedReport, FeedState};
use domain::context::feed_reader::FeedReader;
use domain::context::heartbeats::Heartbeats;
use domain::context::poll_schedule::{PollResult, PollSchedule};
use domain::context::reach::{ReachStep, ReplicaReach};
use foundation::error::Error;
use foundation::fault_injection::Safeguard;
use foundation::id::KeyId;
use foundation::metrics::Counter;
use foundation::secret::KeyHash;
use limiter::redis::FeedReadResult;
use store::cache::{CacheMemory, Cached, Load, RowCache};
use store::freshness::{CacheTag, Freshness, ReadVersion, VersionSlot};
use store::{Intent, LogHead};
use tokio::sync::mpsc;

use super::cached_value::{CACHE_BYTES, SimulatedValue, hash_of};
use super::check::Checker;
use super::database::{DatabaseClient, Tx, Write};
use super::redis::RedisClient;
use super::standby::StandbyClient;
use crate::executor::{Node, Sim, lock, now};
use crate::network::Lost;

/// How long cached values are valid without the database.
pub const GRACE_MS: i64 = 30_000;
const POLL_TIMEOUT: Duration = Duration::from_secs(5);
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
const RECONNECT_DELAY: Duration = Duration::from_millis(250);
const REDIS_TIMEOUT: Duration = Duration::from_millis(40);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// The state of one process; a replica that is killed starts with a new one.
pub struct Replica {
    pub node: Node,
    /// The id of the process.
    pub id: String,
    pub sim: Sim,
    pub freshness: Arc<Freshness>,
    feed_state: FeedState,
    cache: RowCache<KeyHash, SimulatedValue>,
    pub database: DatabaseClient,
    /// Read first, if there is one.
    standby: Option<StandbyClient>,
    heartbeats: Mutex<Heartbeats>,
    redis: RedisClient,
    announcements: mpsc::Sender<String>,
    checker: Arc<Mutex<Checker>>,
}

/// Returns the tag of a key.
pub fn key_tag(key: usize) -> CacheTag {
    CacheTag::Key(KeyId::from(format!("key_{key}").as_str()))
}

impl Replica {
    /// Starts a process and its background tasks. Call it in a task of its node.
    pub fn start(
        id: String,
        database: DatabaseClient,
        standby: Option<StandbyClient>,
        redis: RedisClient,
        checker: Arc<Mutex<Checker>>,
    ) -> Arc<Self> {
        let (node, sim) = (database.node, database.network.sim.clone());
        let freshness = Arc::new(Freshness::new(GRACE_MS, now()));
        let memory = Arc::new(CacheMemory::new(freshness.clone(), CACHE_BYTES));
        let cache = RowCache::new(&memory, 4, &Counter::default(), |_| None);
        let cache = cache.with_clock(now);
        let feed_state = FeedState::default();
        let (announcements, receiver) = mpsc::channel(1024);
        let replica = Arc::new(Self {
            node,
            id,
            sim: sim.clone(),
            freshness,
            feed_state,
            cache,
            database,
            standby,
            heartbeats: Mutex::default(),
            redis,
            announcements,
            checker,
        });
        sim.spawn(node, replica.clone().poll_change_log());
        sim.spawn(node, replica.clone().subscribe_to_changes());
        sim.spawn(node, replica.clone().publish_changes(receiver));
        sim.spawn(node, replica.clone().send_heartbeats());
        replica
    }

    /// Returns the value of a key, as a verification does. Fails if it is neither cached nor loaded.
    pub async fn get(&self, key: usize) -> Result<i64, ()> {
        let load = |load: Load<SimulatedValue>| async move {
            if let Some(cached) = self.load_from_standby(key).await {
                return Ok(Some(cached));
            }
            let value = self.database.load_key(key).await.map_err(|Lost| Error::StoreNotReady)?;
            if self.sim.is_once_in(4) {
                // Changes overtake a reply that is long on its way.
                self.sim.sleep_ms(self.sim.random(200)).await;
            }
            Ok(Some(Cached::new(SimulatedValue(value), load.version, [key_tag(key)])))
        };
        let row = self.cache.get(&hash_of(key), load).await.map_err(|_| ())?;
        row.map(|row| row.value.0).ok_or(())
    }

    /// Reads a key on the standby, as `Context::load_from_standby` does.
    async fn load_from_standby(&self, key: usize) -> Option<Cached<SimulatedValue>> {
        let read = self.standby.as_ref()?.load_key(key, self.id.clone()).await;
        let (value, heartbeat) = read.ok()??;
        let version = lock(&self.heartbeats).date_row(heartbeat, &self.freshness, now())?;
        let cached = Cached::new(SimulatedValue(value), version, [key_tag(key)]);
        self.sim.trace(|| format!("{} reads {value} of key {key} with {heartbeat:?}", self.id));
        cached.is_fresh(&self.freshness, now()).then_some(cached)
    }

    /// Returns the value of a key if it is cached and still valid.
    pub async fn cached_value(&self, key: usize) -> Option<i64> {
        Some(self.cache.peek(&hash_of(key)).await??.value.0)
    }

    pub fn checker(&self) -> Arc<Mutex<Checker>> {
        self.checker.clone()
    }

    /// Returns whether a value that was read at this version may still be used.
    pub fn is_fresh(&self, version: ReadVersion, key: usize) -> bool {
        self.freshness.is_fresh(version, &[VersionSlot::from_tag(&key_tag(key))], now())
    }

    async fn poll_change_log(self: Arc<Self>) {
        let (mut log, mut schedule) = (ChangeLogReader::new(now()), PollSchedule::default());
        loop {
            let read = self.sim.timeout(POLL_TIMEOUT, self.read_log(&mut log)).await;
            let result = match read {
                Some(Ok(has_pending)) => PollResult::Read { has_pending },
                Some(Err(Lost)) => PollResult::Failed,
                None => PollResult::TimedOut,
            };
            let next = schedule.record_result(result, now());
            // Whichever is first.
            self.sim.timeout(next, self.feed_state.wait_for_change()).await;
        }
    }

    async fn read_log(&self, log: &mut ChangeLogReader) -> Result<bool, Lost> {
        let reading = self.feed_state.current_reading();
        let open_intents = self.freshness.intents.list();
        let began = now();
        let pass = self.read_to_end(log).await?;
        self.freshness.record_log_read(began, pass.registered_at(began), now());
        let has_pending = self.report_feed_state(reading.as_ref(), &pass).await?;
        self.resolve_intents(&open_intents, &pass.head).await?;
        Ok(has_pending)
    }

    async fn read_to_end(&self, log: &mut ChangeLogReader) -> Result<LogPass, Lost> {
        log.begin_pass(now());
        loop {
            let step = log.next_step(now());
            if let LogStep::End(pass) = step {
                return Ok(pass);
            }
            let reply: LogReply = self.database.read_log(step, self.id.clone()).await?;
            for effect in log.apply_reply(&reply, now()) {
                self.sim.trace(|| format!("{} reads {effect:?}", self.id));
                effect.apply_to(&self.freshness);
            }
        }
    }

    async fn report_feed_state(
        &self,
        reading: Option<&FeedReading>,
        pass: &LogPass,
    ) -> Result<bool, Lost> {
        let Some(report) = FeedReport::new(reading, pass) else { return Ok(false) };
        if !report.is_empty() {
            let (mut tx, replica) = (self.database.begin().await?, self.id.clone());
            if let Some(era) = report.era {
                let (replica, era) = (replica.clone(), era.to_owned());
                tx.write(Write::Feed { replica, era, grace_ms: GRACE_MS }).await?;
            }
            if !report.intents.is_empty() {
                let intents = report.intents.to_vec();
                self.publish_found_intents(&intents).await;
                tx.write(Write::Acknowledge { replica, intents }).await?;
            }
            tx.commit().await?;
        }
        let confirm = |reading| self.feed_state.confirm_reading(reading, &pass.head);
        Ok(report.era.is_some() | reading.is_some_and(confirm))
    }

    async fn publish_found_intents(&self, intents: &[i64]) {
        let open = self.freshness.intents.list();
        for (position, intent) in open.iter().filter(|(position, _)| intents.contains(position)) {
            let found = Announcement::Intent { position: *position, cache_tags: &intent.tags };
            let _ = self.redis.publish(found.to_string(), REDIS_TIMEOUT).await;
        }
    }

    async fn resolve_intents(
        &self,
        open_intents: &[(i64, Intent)],
        head: &LogHead,
    ) -> Result<(), Lost> {
        if open_intents.is_empty() {
            return Ok(());
        }
        let positions = open_intents.iter().map(|(position, _)| *position).collect();
        let committed = self.database.list_existing_positions(positions).await?;
        for (position, intent) in open_intents {
            let is_committed = committed.contains(position);
            match Announcement::find_result(*position, intent, is_committed, head) {
                Some(result) if result.apply_to(&self.freshness) => {
                    self.queue_announcement(&result);
                }
                Some(_) => {}
                None => self.freshness.intents.record_search(*position, head.next),
            }
        }
        Ok(())
    }

    async fn subscribe_to_changes(self: Arc<Self>) {
        let (mut reader, mut last_number) = (FeedReader::new(now()), 0);
        loop {
            let Err(Lost) = self.read_new_changes(&mut reader, &mut last_number).await;
            reader.record_failure(now(), &self.feed_state, &self.freshness);
            self.sim.sleep(RECONNECT_DELAY).await;
        }
    }

    async fn read_new_changes(
        &self,
        reader: &mut FeedReader,
        last_number: &mut u64,
    ) -> Result<std::convert::Infallible, Lost> {
        loop {
            let Some(from) = reader.position().cloned() else {
                let (end, number) = self.redis.find_end().await?;
                reader.begin_at(end, &self.feed_state);
                *last_number = number;
                continue;
            };
            let (began, others) = (now(), self.feed_state.other_replicas.load_full());
            let is_known = self.feed_state.is_proof();
            let replicas = (self.id.clone(), others.to_vec());
            let read = self.redis.read((from, *last_number), replicas, is_known).await?;
            let (result, number) = read;
            *last_number = number;
            if !matches!(&result, FeedReadResult::Announcements { texts, .. } if texts.is_empty()) {
                self.sim.trace(|| format!("{} reads {result:?}", self.id));
            }
            reader.apply_result(result, (began, now()), &self.feed_state, &self.freshness);
        }
    }

    async fn publish_changes(self: Arc<Self>, mut announcements: mpsc::Receiver<String>) {
        while let Some(text) = announcements.recv().await {
            let _ = self.redis.publish(text, REDIS_TIMEOUT).await;
        }
    }

    fn queue_announcement(&self, announcement: &Announcement<'_>) {
        let _ = self.announcements.try_send(announcement.to_string());
    }

    async fn send_heartbeats(self: Arc<Self>) {
        loop {
            let heartbeat = lock(&self.heartbeats).begin();
            let version = self.freshness.read_version(now());
            lock(&self.heartbeats).record_version(heartbeat, version);
            if let Ok(live) = self.database.register(self.id.clone(), heartbeat).await {
                lock(&self.heartbeats).record_commit(heartbeat);
                let others = live.into_iter().filter(|id| *id != self.id);
                self.feed_state.other_replicas.store(Arc::new(others.collect()));
            }
            self.sim.sleep(HEARTBEAT_INTERVAL).await;
        }
    }

    /// Changes a key to the next value, as a management request does, and records the acknowledgement.
    pub async fn change(self: Arc<Self>, key: usize) {
        let version = self.freshness.read_version(now());
        let changed = self.sim.timeout(REQUEST_TIMEOUT, self.change_to_next(key)).await;
        let result = changed.unwrap_or(Err(Lost));
        self.sim.trace(|| format!("{} has changed key {key}: {result:?}", self.id));
        if let Ok(value) = result {
            lock(&self.checker).record_change(&self, key, value, version);
        }
    }

    async fn change_to_next(&self, key: usize) -> Result<i64, Lost> {
        let mut tx = self.database.begin().await?;
        let value = tx.lock_key(key).await? + 1;
        tx.write(Write::Key(key, value, self.id.clone())).await?;
        if self.sim.is_once_in(4) {
            // The lock of another row is waited for.
            self.sim.sleep_ms(self.sim.random(1_500)).await;
        }
        self.commit(tx, &format!("{}\n", key_tag(key))).await?;
        Ok(value)
    }

    async fn commit(&self, mut tx: Tx, tags: &str) -> Result<(), Lost> {
        let position = tx.insert_changes(tags.lines().map(str::to_owned).collect()).await?;
        self.freshness.intents.open(position, tags);
        self.sim.trace(|| format!("{} is about to commit {position}: {tags:?}", self.id));
        let reached = self.reach_replicas(&mut tx, position, tags).await;
        if reached != Ok(true) {
            drop(tx);
            self.freshness.intents.close(position);
            self.queue_announcement(&Announcement::RolledBack { position });
            return Err(Lost);
        }
        self.inject_commit_fault(2).await;
        let committed = tx.commit().await;
        self.inject_commit_fault(1).await;
        if !Safeguard::OwnChange.is_disabled() {
            tags.lines().for_each(|tag| self.freshness.record_invalidation_text(tag));
        }
        committed?;
        self.freshness.intents.close(position);
        self.queue_announcement(&Announcement::Committed { position, cache_tags: tags });
        Ok(())
    }

    /// Ends this process or waits if a fault says so, here once in so many times.
    async fn inject_commit_fault(&self, times: u64) {
        let fault = lock(&self.checker).commit_faults.get(&self.node).copied();
        let Some(fault) = fault.filter(|_| self.sim.is_once_in(times)) else { return };
        lock(&self.checker).commit_faults.remove(&self.node);
        match fault {
            Some(duration) => self.sim.sleep(duration).await,
            None => {
                self.sim.trace(|| format!("{} crashes", self.id));
                self.sim.kill(self.node);
                std::future::pending::<()>().await;
            }
        }
    }

    async fn reach_replicas(&self, tx: &mut Tx, position: i64, tags: &str) -> Result<bool, Lost> {
        let intent = Announcement::Intent { position, cache_tags: tags }.to_string();
        let mut reach = ReplicaReach::new(false);
        loop {
            match reach.next_step() {
                ReachStep::Publish => {
                    let published = self.redis.publish(intent.clone(), REDIS_TIMEOUT).await;
                    let is_everywhere = published.is_ok();
                    reach.record_published((published.into_iter().collect(), is_everywhere));
                }
                ReachStep::ListUnreached if Safeguard::Reach.is_disabled() => return Ok(true),
                ReachStep::ListUnreached => {
                    let era = reach.eras().0.first().cloned().unwrap_or_default();
                    let id = self.id.clone();
                    let unreached = tx.list_unreached(id, era, position).await?;
                    reach.record_unreached(!unreached.is_empty(), now());
                }
                ReachStep::LogIntent => {
                    let mut intent_tx = self.database.begin().await?;
                    intent_tx.insert_changes(vec![intent.clone()]).await?;
                    intent_tx.commit().await?;
                    reach.record_logged(now());
                }
                ReachStep::Pause(pause) => {
                    self.sim.sleep(pause).await;
                    reach.try_again();
                }
                ReachStep::Commit => return Ok(true),
                ReachStep::RollBack => return Ok(false),
            }
        }
    }
}
