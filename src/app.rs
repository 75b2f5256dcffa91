//! The bag that is handed down: everything that a request needs and that outlives it.

mod commit;
pub mod feed;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use foundation::clock::Clock;
use foundation::config::{Deployment, Settings};
use foundation::error::Result;
use foundation::id::{ApiId, IdentityId, ReplicaId, RoleId, WorkspaceId};
use foundation::metrics::{CacheLoads, Metrics};
use foundation::model::{Identity, Role};
use foundation::secret::KeyHash;
use foundation::vault::{MasterKeys, file};
use limiter::local::LocalCounters;
use limiter::redis::RedisCounters;
use limiter::{ApproximateWindows, GroupTotals, Keyspace};
use oidc::OidcClient;
use store::cache::{Cached, RowCache};
use store::freshness::{CacheTag, Freshness};
use store::{EventStore, Store, StoreHandle, StoredKey, StoredNamespace};
use tokio::sync::mpsc;

use self::feed::FeedState;
use crate::domain::analytics::EventBuffer;
use crate::domain::analytics::clickhouse_delivery::DeliveryState;
use crate::domain::analytics::sql_query::QueryQuotas;
use crate::domain::caller::Principal;
use crate::domain::credits::{Debits, LeaseSpendTracker, Turns};
use crate::domain::keys::ResolvedKey;
use crate::domain::last_used::LastUsedBuffer;
use crate::domain::ratelimits::NamespaceName;
use crate::domain::root_keys;
use crate::domain::users::PasswordHasher;

/// The file of an embedded server, in its data directory.
pub const DATABASE_FILE: &str = "keyward.db";
/// The file of what happened, beside it.
pub const EVENTS_FILE: &str = "keyward-events.db";
/// How many announcements may wait for Redis. Whoever has one more sends it itself.
const ANNOUNCEMENTS_MAX: usize = 1024;

/// How long a replica counts as there after it has said so.
pub const REPLICA_TTL_MS: i64 = 7_000;

pub struct App {
    pub settings: Settings,
    pub clock: Clock,
    pub store: StoreHandle,
    /// What happened, as far as it has been written.
    pub events: EventStore,
    /// How much has been asked about it.
    pub query_quotas: QueryQuotas,
    /// What happened, and waits to be written.
    pub event_buffer: EventBuffer,
    /// What is known of ClickHouse, where events go if there is one.
    pub delivery_state: DeliveryState,
    pub freshness: Arc<Freshness>,
    /// What is read of others' announcements.
    pub feed: FeedState,
    pub caches: Caches,
    /// Who has no root key; made once, for every verification of version 1 asks as this.
    pub anonymous: Arc<Cached<Principal>>,
    /// The counters that all replicas share; absent in an embedded server.
    pub redis: Option<RedisCounters>,
    /// The counters of this process: an embedded server's, and a replica's while Redis is away.
    pub local_counters: LocalCounters,
    /// How this process is called among the replicas.
    pub replica_id: String,
    /// How many replicas there are, by the last count; 0 before the first.
    pub live_replicas: AtomicU32,
    /// How many of them come before this one in the order of their names, by the last count.
    pub rank: AtomicU32,
    pub keyspace: Keyspace,
    pub metrics: Metrics,
    /// Whether Redis answered when it was last asked; see [`crate::domain::health`].
    pub redis_reachable: AtomicBool,
    /// Set when the server has been told to stop and waits for the balancer to notice.
    pub draining: AtomicBool,
    /// What opens the vault. Absent: there is none.
    pub master_keys: ArcSwapOption<MasterKeys>,
    pub turns: Turns,
    /// Debits of accounts in the database that wait for their turn.
    pub debits: Debits,
    /// What this process has spent from purses.
    pub lease_spend: LeaseSpendTracker,
    /// Windows that are answered from memory.
    pub approximate_windows: ApproximateWindows,
    /// How many ad-hoc counters workspaces have.
    pub group_totals: GroupTotals,
    /// Keys that were used lately.
    pub last_used: LastUsedBuffer,
    /// Who hashes passwords at this moment.
    pub password_hasher: PasswordHasher,
    /// Who says who somebody is. Absent: there is no single sign-on.
    pub oidc: Option<OidcClient>,
    announcements: mpsc::Sender<String>,
}

/// How many counts of keys are remembered, and for how long.
const KEY_COUNTS_MAX: u64 = 10_000;
const KEY_COUNT_FOR: Duration = Duration::from_mins(5);

/// What has been read and is still true.
pub struct Caches {
    pub resolved_keys: RowCache<KeyHash, ResolvedKey>,
    pub keys: RowCache<KeyHash, StoredKey>,
    pub identities: RowCache<IdentityId, Identity>,
    pub roles: RowCache<RoleId, Role>,
    pub root_keys: RowCache<KeyHash, Principal>,
    pub namespaces: RowCache<NamespaceName, StoredNamespace>,
    /// How many keys an API had within the last minutes.
    pub key_counts: moka::sync::Cache<(WorkspaceId, ApiId), i64>,
}

impl Caches {
    fn new(freshness: &Arc<Freshness>, keys_max: u64, loads: &CacheLoads) -> Self {
        let new_key = |hash: &KeyHash| Some(CacheTag::NewKey(hash.fingerprint()));
        Self {
            resolved_keys: RowCache::new(freshness, keys_max, 1 << 16, &loads.views, new_key),
            keys: RowCache::new(freshness, keys_max, 0, &loads.keys, new_key),
            // What was deleted may come back.
            identities: RowCache::new(
                freshness,
                keys_max,
                0,
                &loads.identities,
                |id: &IdentityId| Some(CacheTag::Identity(id.clone())),
            ),
            roles: RowCache::new(freshness, keys_max, 0, &loads.roles, |id: &RoleId| {
                Some(CacheTag::Role(id.clone()))
            }),
            root_keys: RowCache::new(freshness, keys_max, 1 << 8, &loads.root_keys, new_key),
            namespaces: RowCache::new(freshness, keys_max, 1 << 10, &loads.namespaces, |name| {
                Some(CacheTag::NewNamespace(name.fingerprint()))
            }),
            key_counts: moka::sync::Cache::builder()
                .max_capacity(KEY_COUNTS_MAX)
                .time_to_live(KEY_COUNT_FOR)
                .build(),
        }
    }
}

impl App {
    /// An app whose store is yet to be opened. The second value yields what is to be announced to
    /// other replicas; see [`crate::stream`].
    pub fn new(settings: Settings, clock: Clock) -> Result<(Self, mpsc::Receiver<String>)> {
        let metrics = Metrics::default();
        let events = Self::events(&settings)?;
        let (keyspace, redis) = match &settings.engines {
            Deployment::Embedded { .. } => (Keyspace::new(""), None),
            Deployment::Replica { redis_url, .. } => {
                let keyspace = Keyspace::new(settings.redis_prefix.clone());
                let timeout = Duration::from_millis(settings.redis_timeout_ms);
                let redis = RedisCounters::new(redis_url, timeout, keyspace.clone(), &metrics)?;
                (keyspace, Some(redis))
            }
        };
        let grace_ms = i64::try_from(settings.database_grace_seconds * 1000).unwrap_or(i64::MAX);
        let freshness = Arc::new(Freshness::new(grace_ms));
        let caches = Caches::new(&freshness, settings.cached_keys_max, &metrics.cache_loads);
        let (announcements, waiting) = mpsc::channel(ANNOUNCEMENTS_MAX);
        let happened =
            EventBuffer::new(settings.events_waiting_max, settings.events_waiting_bytes_max);
        let draining = AtomicBool::new(false);
        let issuer = settings.oidc.as_ref().map(OidcClient::new).transpose()?;
        let masters = settings.master_keys.clone().map(Arc::new);
        let debits = Debits::new(&settings);
        let app = Self {
            settings,
            store: StoreHandle::default(),
            events,
            query_quotas: QueryQuotas::default(),
            event_buffer: happened,
            delivery_state: DeliveryState::default(),
            anonymous: root_keys::nobody(&freshness),
            freshness,
            feed: FeedState::default(),
            caches,
            redis,
            local_counters: LocalCounters::new(clock.clone()),
            replica_id: ReplicaId::random().as_str().to_owned(),
            live_replicas: AtomicU32::new(0),
            rank: AtomicU32::new(0),
            clock,
            keyspace,
            metrics,
            redis_reachable: AtomicBool::new(false),
            draining,
            master_keys: ArcSwapOption::new(masters),
            turns: Turns::default(),
            debits,
            lease_spend: LeaseSpendTracker::default(),
            approximate_windows: ApproximateWindows::default(),
            group_totals: GroupTotals::default(),
            last_used: LastUsedBuffer::default(),
            password_hasher: PasswordHasher::default(),
            oidc: issuer,
            announcements,
        };
        Ok((app, waiting))
    }

    /// Where what happened is kept. Nothing is opened yet.
    pub fn events(settings: &Settings) -> Result<EventStore> {
        let events = match &settings.engines {
            Deployment::Embedded { data_dir } => EventStore::open(&data_dir.join(EVENTS_FILE)),
            Deployment::Replica { database_url, .. } => {
                EventStore::connect(database_url, settings.analytics_url.as_deref())?
            }
        };
        events.with_clickhouse(settings.clickhouse_url.as_ref())
    }

    /// Opens the database that the settings name.
    pub async fn open_store(settings: &Settings) -> Result<Store> {
        match &settings.engines {
            Deployment::Embedded { data_dir } => Store::open(&data_dir.join(DATABASE_FILE)).await,
            Deployment::Replica { database_url, .. } => {
                Store::connect(database_url, settings.database_connections_max).await
            }
        }
    }

    /// Reads the file that holds an embedded server's master key once more; whether there is one.
    pub fn reload_master_keys(&self) -> bool {
        let Deployment::Embedded { data_dir } = &self.settings.engines else { return false };
        match file::read(data_dir) {
            Ok(Some(found)) if self.settings.master_keys.is_none() => {
                self.master_keys.store(Some(Arc::new(found)));
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Whether the others know of this replica, so that its word is waited for.
    pub fn is_registered(&self) -> bool {
        self.live_replicas.load(Ordering::Relaxed) > 0
    }

    /// Says that this replica is there, and counts those that are.
    pub async fn register_replica(&self, store: &Store) -> Result<()> {
        let mut tx = store.begin_reserved().await?;
        let live = tx.register_replica(&self.replica_id, REPLICA_TTL_MS).await?;
        tx.commit().await?;
        let count = |ids: usize| u32::try_from(ids).unwrap_or(u32::MAX);
        let rank = live.iter().filter(|id| **id < self.replica_id).count();
        self.rank.store(count(rank), Ordering::Relaxed);
        self.live_replicas.store(count(live.len()).max(1), Ordering::Relaxed);
        let others = live.into_iter().filter(|id| *id != self.replica_id);
        self.feed.others.store(Arc::new(others.collect()));
        Ok(())
    }
}
