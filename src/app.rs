//! Holds the application state that is passed to every layer and outlives a request.

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
use crate::domain::credits::{DirectDebits, LeaseSpendTracker, TopUpLocks};
use crate::domain::keys::ResolvedKey;
use crate::domain::last_used::LastUsedBuffer;
use crate::domain::ratelimits::NamespaceRef;
use crate::domain::root_keys;
use crate::domain::users::PasswordHasher;

/// The file of an embedded server, in its data directory.
pub const DATABASE_FILE: &str = "keyward.db";
/// The file of analytics events, in the same directory.
pub const EVENTS_FILE: &str = "keyward-events.db";
/// The maximum number of announcements that wait for Redis. The writer of one more sends it itself.
const ANNOUNCEMENTS_MAX: usize = 1024;

/// How long a replica counts as live after it has registered.
pub const REPLICA_TTL_MS: i64 = 7_000;

pub struct App {
    pub settings: Settings,
    pub clock: Clock,
    pub store: StoreHandle,
    /// The analytics events that have been written.
    pub event_store: EventStore,
    /// The quotas of analytics queries per workspace and hour.
    pub query_quotas: QueryQuotas,
    /// The analytics events that wait to be written.
    pub event_buffer: EventBuffer,
    /// The state of the delivery to ClickHouse, if it is configured.
    pub delivery_state: DeliveryState,
    pub freshness: Arc<Freshness>,
    /// The state of reading the announcements of other replicas.
    pub feed_state: FeedState,
    pub caches: Caches,
    /// The anonymous principal: a caller without a root key. Created once, because every v1 verification without a root
    /// key uses it.
    pub anonymous: Arc<Cached<Principal>>,
    /// The counters that all replicas share; absent in an embedded server.
    pub redis: Option<RedisCounters>,
    /// The counters of this process: for an embedded server, and for a replica while Redis is unreachable.
    pub local_counters: LocalCounters,
    /// The ID of this process among the replicas.
    pub replica_id: String,
    /// The number of live replicas at the last count; 0 before the first.
    pub live_replicas: AtomicU32,
    /// The number of live replicas before this one in the order of their IDs, at the last count.
    pub replica_rank: AtomicU32,
    pub keyspace: Keyspace,
    pub metrics: Metrics,
    /// Whether Redis replied to the last call; see [`crate::domain::health`].
    pub redis_reachable: AtomicBool,
    /// Set when the server is shutting down and waits for the load balancer to notice.
    pub is_draining: AtomicBool,
    /// The master keys of the vault. Absent if it has none.
    pub master_keys: ArcSwapOption<MasterKeys>,
    pub top_up_locks: TopUpLocks,
    /// Debits of accounts in the database that wait for their turn.
    pub direct_debits: DirectDebits,
    /// The credits that this process has spent from leases.
    pub lease_spend: LeaseSpendTracker,
    /// Windows that are decided from memory.
    pub approximate_windows: ApproximateWindows,
    /// The number of ad-hoc counters per workspace.
    pub group_totals: GroupTotals,
    /// Keys that were used recently.
    pub last_used: LastUsedBuffer,
    /// Hashes passwords, with a bound on concurrency.
    pub password_hasher: PasswordHasher,
    /// The client of the OIDC provider. Absent if single sign-on is not configured.
    pub oidc: Option<OidcClient>,
    announcements: mpsc::Sender<String>,
}

/// How many key counts are cached, and for how long.
const KEY_COUNTS_MAX: u64 = 10_000;
const KEY_COUNT_TTL: Duration = Duration::from_mins(5);

/// Caches of rows that are still current.
pub struct Caches {
    pub resolved_keys: RowCache<KeyHash, ResolvedKey>,
    pub keys: RowCache<KeyHash, StoredKey>,
    pub identities: RowCache<IdentityId, Identity>,
    pub roles: RowCache<RoleId, Role>,
    pub root_keys: RowCache<KeyHash, Principal>,
    pub namespaces: RowCache<NamespaceRef, StoredNamespace>,
    /// The number of keys of an API within the last minutes.
    pub key_counts: moka::sync::Cache<(WorkspaceId, ApiId), i64>,
}

impl Caches {
    fn new(freshness: &Arc<Freshness>, keys_max: u64, loads: &CacheLoads) -> Self {
        let new_key = |hash: &KeyHash| Some(CacheTag::NewKey(hash.fingerprint()));
        Self {
            resolved_keys: RowCache::new(freshness, keys_max, 1 << 16, &loads.views, new_key),
            keys: RowCache::new(freshness, keys_max, 0, &loads.keys, new_key),
            // A deleted identity may be restored.
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
                .time_to_live(KEY_COUNT_TTL)
                .build(),
        }
    }
}

impl App {
    /// Creates an app whose store is yet to be opened. The second value yields announcements to publish to other
    /// replicas; see [`crate::background`].
    pub fn new(settings: Settings, clock: Clock) -> Result<(Self, mpsc::Receiver<String>)> {
        let metrics = Metrics::default();
        let events = Self::create_event_store(&settings)?;
        let (keyspace, redis) = match &settings.deployment {
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
        let (announcements, receiver) = mpsc::channel(ANNOUNCEMENTS_MAX);
        let event_buffer =
            EventBuffer::new(settings.events_waiting_max, settings.events_waiting_bytes_max);
        let draining = AtomicBool::new(false);
        let oidc = settings.oidc.as_ref().map(OidcClient::new).transpose()?;
        let master_keys = settings.master_keys.clone().map(Arc::new);
        let debits = DirectDebits::new(&settings);
        let app = Self {
            settings,
            store: StoreHandle::default(),
            event_store: events,
            query_quotas: QueryQuotas::default(),
            event_buffer,
            delivery_state: DeliveryState::default(),
            anonymous: root_keys::anonymous_principal(&freshness),
            freshness,
            feed_state: FeedState::default(),
            caches,
            redis,
            local_counters: LocalCounters::new(clock.clone()),
            replica_id: ReplicaId::random().as_str().to_owned(),
            live_replicas: AtomicU32::new(0),
            replica_rank: AtomicU32::new(0),
            clock,
            keyspace,
            metrics,
            redis_reachable: AtomicBool::new(false),
            is_draining: draining,
            master_keys: ArcSwapOption::new(master_keys),
            top_up_locks: TopUpLocks::default(),
            direct_debits: debits,
            lease_spend: LeaseSpendTracker::default(),
            approximate_windows: ApproximateWindows::default(),
            group_totals: GroupTotals::default(),
            last_used: LastUsedBuffer::default(),
            password_hasher: PasswordHasher::default(),
            oidc,
            announcements,
        };
        Ok((app, receiver))
    }

    /// Returns the store of analytics events. Nothing is opened yet.
    pub fn create_event_store(settings: &Settings) -> Result<EventStore> {
        let events = match &settings.deployment {
            Deployment::Embedded { data_dir } => EventStore::open(&data_dir.join(EVENTS_FILE)),
            Deployment::Replica { database_url, .. } => {
                EventStore::connect(database_url, settings.analytics_url.as_deref())?
            }
        };
        events.with_clickhouse(settings.clickhouse_url.as_ref())
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

    /// Returns whether other replicas know of this replica, so that they wait for its reports.
    pub fn is_registered(&self) -> bool {
        self.live_replicas.load(Ordering::Relaxed) > 0
    }

    /// Registers this replica as live, and counts the live replicas.
    pub async fn register_replica(&self, store: &Store) -> Result<()> {
        let mut tx = store.begin_reserved().await?;
        let live = tx.register_replica(&self.replica_id, REPLICA_TTL_MS).await?;
        tx.commit().await?;
        let count = |ids: usize| u32::try_from(ids).unwrap_or(u32::MAX);
        let rank = live.iter().filter(|id| **id < self.replica_id).count();
        self.replica_rank.store(count(rank), Ordering::Relaxed);
        self.live_replicas.store(count(live.len()).max(1), Ordering::Relaxed);
        let others = live.into_iter().filter(|id| *id != self.replica_id);
        self.feed_state.other_replicas.store(Arc::new(others.collect()));
        Ok(())
    }
}
