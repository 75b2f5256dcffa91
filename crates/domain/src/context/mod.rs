//! What every part of the domain works with: settings, clock, databases, counters, and the caches of rows.
//!
//! It uses no other module of the domain. State that belongs to one module is in the service of that module, such as
//! [`crate::keys::Keys`], which holds the context and the services that it uses.

pub mod change_log;
mod commit;
pub mod feed;
pub mod feed_reader;
pub mod heartbeats;
pub mod imported_keys;
pub mod poll_schedule;
pub mod reach;
mod regions;
mod standby;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use foundation::clock::{Clock, Monotonic};
use foundation::config::{Deployment, Settings};
use foundation::distance::Distance;
use foundation::error::Result;
use foundation::id::{IdentityId, ReplicaId, RoleId};
use foundation::metrics::Metrics;
use foundation::model::{Identity, Role};
use foundation::secret::KeyHash;
use foundation::vault::{MasterKeys, file};
use limiter::Keyspace;
use limiter::local::LocalCounters;
use limiter::redis::{RedisAddress, RedisCounters};
use parking_lot::Mutex;
use store::cache::{CacheMemory, RowCache};
use store::freshness::{CacheTag, Freshness};
use store::{Store, StoreHandle};
use tokio::sync::mpsc;

use self::feed::FeedState;
use self::heartbeats::Heartbeats;
use self::imported_keys::ImportedKeys;
pub use self::regions::{
    LeaseHolder, OwnRegion, Regions, find_misplaced_redis, find_region_conflict,
    misplaced_redis_message, register_regions,
};
pub use self::standby::{STANDBY_READ_TIMEOUT, StandbySource};

/// The file of an embedded server, in its data directory.
pub const DATABASE_FILE: &str = "keyward.db";
/// The maximum number of announcements that wait for Redis. The writer of one more sends it itself.
const ANNOUNCEMENTS_MAX: usize = 1024;

/// From this round trip on, the database is far away: a call mostly waits for the network.
const FAR_ROUND_TRIP: Duration = Duration::from_millis(10);

/// How long a replica counts as live after it has registered.
pub const REPLICA_TTL_MS: i64 = 7_000;

/// The process-wide state that all modules of the domain share.
pub struct Context {
    pub settings: Settings,
    pub clock: Clock,
    pub store: StoreHandle,
    /// The round trip to the database, measured when its change log is read.
    pub database_distance: Distance,
    pub freshness: Arc<Freshness>,
    /// The state of reading the announcements of other replicas.
    pub feed_state: FeedState,
    pub caches: Caches,
    /// The counters that all replicas share; absent in an embedded server.
    pub redis: Option<RedisCounters>,
    /// The regions that share limits and credits. Absent: there is one.
    pub regions: Option<Regions>,
    /// The counters of this process: for an embedded server, and for a replica while Redis is unreachable.
    pub local_counters: LocalCounters,
    /// The ID of this process among the replicas.
    pub replica_id: String,
    pub heartbeats: Mutex<Heartbeats>,
    /// The read replica of the database, from which uncached rows are read.
    pub standby: Option<StandbySource>,
    /// The number of live replicas at the last count; 0 before the first.
    pub live_replicas: AtomicU32,
    /// The number of live replicas before this one in the order of their IDs, at the last count.
    pub replica_rank: AtomicU32,
    pub keyspace: Keyspace,
    pub metrics: Metrics,
    /// Whether Redis replied to the last call; see [`crate::health`].
    pub redis_reachable: AtomicBool,
    /// Set when the server is shutting down and waits for the load balancer to notice.
    pub is_draining: AtomicBool,
    /// The keys that this process has imported of late.
    pub imported_keys: ImportedKeys,
    /// The master keys of the vault. Absent if it has none.
    pub master_keys: ArcSwapOption<MasterKeys>,
    announcements: mpsc::Sender<String>,
}

/// Caches of rows that are still current.
pub struct Caches {
    /// The memory that all caches share.
    pub memory: Arc<CacheMemory>,
    pub identities: RowCache<IdentityId, Identity>,
    pub roles: RowCache<RoleId, Role>,
}

impl Context {
    /// Reads from the database, and once more if the connection was lost. Others that are idle may be lost too, as after a
    /// restart of Postgres, but the second read does not use one of those.
    pub async fn read_again_if_lost<T, F>(&self, read: impl Fn() -> F + Send + Sync) -> Result<T>
    where
        T: Send,
        F: Future<Output = Result<T>> + Send,
    {
        match read().await {
            Err(e) if e.has_lost_connection() => {
                self.store.store()?.record_lost_connection();
                read().await
            }
            found => found,
        }
    }

    /// Creates a context whose store is yet to be opened. The second value yields announcements to publish to other
    /// replicas.
    pub fn new(settings: Settings, clock: Clock) -> Result<(Self, mpsc::Receiver<String>)> {
        let metrics = Metrics::default();
        let (keyspace, redis, regions) = match &settings.deployment {
            Deployment::Embedded { .. } => (Keyspace::new(""), None, None),
            Deployment::Replica { redis_url, .. } => {
                let keyspace = Keyspace::new(settings.redis_prefix.clone());
                let timeout = Duration::from_millis(settings.redis_timeout_ms);
                let address = RedisAddress::new(redis_url, &settings.redis_tls);
                let redis = RedisCounters::new(address, timeout, keyspace.clone(), &metrics)?;
                let regions = settings.regions.as_ref();
                let regions = regions
                    .map(|it| Regions::new(it, &settings, &keyspace, &metrics))
                    .transpose()?;
                let redis = match &regions {
                    Some(regions) => redis.with_regions(regions.counters().to_vec(), &metrics),
                    None => redis,
                };
                (keyspace, Some(redis), regions)
            }
        };
        let grace_ms = i64::try_from(settings.database_grace_seconds * 1000).unwrap_or(i64::MAX);
        let freshness = Arc::new(Freshness::new(grace_ms, Monotonic::now()));
        let loads = &metrics.cache_loads;
        let memory = Arc::new(CacheMemory::new(freshness.clone(), settings.cache_bytes_max));
        let caches = Caches {
            // A deleted identity may be restored.
            identities: RowCache::new(&memory, 0, &loads.identities, |id: &IdentityId| {
                Some(CacheTag::Identity(id.clone()))
            }),
            roles: RowCache::new(&memory, 0, &loads.roles, |id: &RoleId| {
                Some(CacheTag::Role(id.clone()))
            }),
            memory,
        };
        let standby = settings
            .database_read_url
            .as_deref()
            .map(|url| StandbySource::new(url, settings.database_connections_max))
            .transpose()?;
        let (announcements, receiver) = mpsc::channel(ANNOUNCEMENTS_MAX);
        let master_keys = settings.master_keys.clone().map(Arc::new);
        let context = Self {
            settings,
            store: StoreHandle::default(),
            database_distance: Distance::default(),
            freshness,
            feed_state: FeedState::default(),
            caches,
            redis,
            regions,
            local_counters: LocalCounters::new(clock.clone()),
            replica_id: ReplicaId::random().as_str().to_owned(),
            heartbeats: Mutex::default(),
            standby,
            live_replicas: AtomicU32::new(0),
            replica_rank: AtomicU32::new(0),
            clock,
            keyspace,
            metrics,
            redis_reachable: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            imported_keys: ImportedKeys::default(),
            master_keys: ArcSwapOption::new(master_keys),
            announcements,
        };
        Ok((context, receiver))
    }

    /// Returns whether a call to the database mostly waits for the network.
    pub fn is_database_far(&self) -> bool {
        self.database_distance.round_trip().is_some_and(|it| it >= FAR_ROUND_TRIP)
    }

    /// Opens the database that the settings name.
    pub async fn open_store(settings: &Settings) -> Result<Store> {
        match &settings.deployment {
            Deployment::Embedded { data_dir } => Store::open(&data_dir.join(DATABASE_FILE)).await,
            Deployment::Replica { database_url, .. } => {
                Store::connect(database_url, settings.database_connections_max).await
            }
        }
    }

    /// Waits for calls in progress and closes every connection to the database and its read replica.
    pub async fn close_store(&self) {
        if let Some(standby) = &self.standby {
            standby.close().await;
        }
        self.store.close().await;
    }

    /// Reads the file of an embedded server's master key again. Returns whether there is one.
    pub fn reload_master_keys(&self) -> bool {
        let Deployment::Embedded { data_dir } = &self.settings.deployment else { return false };
        match file::read(data_dir) {
            Ok(Some(found)) if self.settings.master_keys.is_none() => {
                self.master_keys.store(Some(Arc::new(found)));
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Returns the time that a call to Redis may take, which follows the distance to it.
    pub fn redis_timeout(&self) -> Duration {
        let configured = || Duration::from_millis(self.settings.redis_timeout_ms);
        self.redis.as_ref().map_or_else(configured, RedisCounters::timeout)
    }

    /// Returns whether other replicas know of this replica, so that they wait for its reports.
    pub fn is_registered(&self) -> bool {
        self.live_replicas.load(Ordering::Relaxed) > 0
    }

    /// Registers this replica as live, and counts the live replicas.
    pub async fn register_replica(&self, store: &Store) -> Result<()> {
        let heartbeat = self.heartbeats.lock().begin();
        let mut tx = store.begin_reserved().await?;
        let region = self.own_region();
        let live =
            tx.register_replica(&self.replica_id, &region.name, heartbeat, REPLICA_TTL_MS).await?;
        let version = self.freshness.read_version(Monotonic::now());
        self.heartbeats.lock().record_version(heartbeat, version);
        tx.commit().await?;
        self.heartbeats.lock().record_commit(heartbeat);
        let count = |ids: usize| u32::try_from(ids).unwrap_or(u32::MAX);
        let rank = live.iter().filter(|(id, _)| *id < self.replica_id).count();
        self.replica_rank.store(count(rank), Ordering::Relaxed);
        self.live_replicas.store(count(live.len()).max(1), Ordering::Relaxed);
        // Those that read the same announcements.
        let others =
            live.into_iter().filter(|(id, of)| *id != self.replica_id && region.contains(of));
        self.feed_state.other_replicas.store(Arc::new(others.map(|(id, _)| id).collect()));
        Ok(())
    }
}

/// Returns the tag that is invalidated when a key with this hash is created.
pub fn new_key_tag(hash: &KeyHash) -> Option<CacheTag> {
    Some(CacheTag::NewKey(hash.fingerprint()))
}

#[cfg(test)]
mod tests;
