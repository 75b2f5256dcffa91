//! The bag that is handed down: everything that a request needs and that outlives it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::config::{Engines, Settings};
use crate::domain::caller::Authority;
use crate::domain::credits::Withdrawals;
use crate::domain::keys::View;
use crate::domain::ratelimits::NamespaceName;
use crate::error::Result;
use crate::id::{IdentityId, RoleId};
use crate::limiter::local::LocalCounters;
use crate::limiter::redis::RedisCounters;
use crate::limiter::{Counters, Keyspace};
use crate::model::{Identity, Role};
use crate::secret::KeyHash;
use crate::store::cache::Rows;
use crate::store::freshness::{Freshness, Subject};
use crate::store::{Store, StoredKey, StoredNamespace, Tx};

/// The file of an embedded server, in its data directory.
pub const DATABASE_FILE: &str = "keyward.db";
/// How many announcements may wait for Redis. When there are more, the change log must do: every
/// replica reads it twice a second.
const ANNOUNCEMENTS_MAX: usize = 1024;

pub struct App {
    pub settings: Settings,
    pub clock: Clock,
    pub store: Store,
    pub freshness: Arc<Freshness>,
    pub caches: Caches,
    pub counters: Counters,
    pub keyspace: Keyspace,
    /// Set when the server has been told to stop and waits for the balancer to notice.
    pub draining: AtomicBool,
    pub withdrawals: Withdrawals,
    announcements: mpsc::Sender<String>,
}

/// What has been read and is still true.
pub struct Caches {
    pub views: Rows<KeyHash, View>,
    pub keys: Rows<KeyHash, StoredKey>,
    pub identities: Rows<IdentityId, Identity>,
    pub roles: Rows<RoleId, Role>,
    pub root_keys: Rows<KeyHash, Authority>,
    pub namespaces: Rows<NamespaceName, StoredNamespace>,
}

impl Caches {
    fn new(freshness: &Arc<Freshness>, keys_max: u64) -> Self {
        let new_key = |hash: &KeyHash| Some(Subject::NewKey(hash.fingerprint()));
        Self {
            views: Rows::new(freshness, keys_max, 1 << 16, new_key),
            keys: Rows::new(freshness, keys_max, 0, new_key),
            identities: Rows::new(freshness, keys_max, 0, |_| None),
            roles: Rows::new(freshness, keys_max, 0, |_| None),
            root_keys: Rows::new(freshness, keys_max, 1 << 8, new_key),
            namespaces: Rows::new(freshness, keys_max, 1 << 10, |name| {
                Some(Subject::NewNamespace(name.fingerprint()))
            }),
        }
    }
}

impl App {
    /// An app on a store that has been opened and migrated. The second value yields what is to be
    /// announced to other replicas; see [`crate::stream`].
    pub fn new(
        settings: Settings,
        store: Store,
        clock: Clock,
    ) -> Result<(Self, mpsc::Receiver<String>)> {
        let (keyspace, counters) = match &settings.engines {
            Engines::Embedded { .. } => {
                (Keyspace::new(""), Counters::Local(LocalCounters::new(clock.clone())))
            }
            Engines::Replica { redis_url, .. } => {
                let keyspace = Keyspace::new(settings.redis_prefix.clone());
                let timeout = Duration::from_millis(settings.redis_timeout_ms);
                let counters = RedisCounters::new(redis_url, timeout, keyspace.clone())?;
                (keyspace, Counters::Redis(Box::new(counters)))
            }
        };
        let grace_ms = i64::try_from(settings.database_grace_seconds * 1000).unwrap_or(i64::MAX);
        let freshness = Arc::new(Freshness::new(grace_ms));
        let caches = Caches::new(&freshness, settings.cached_keys_max);
        let (announcements, waiting) = mpsc::channel(ANNOUNCEMENTS_MAX);
        let draining = AtomicBool::new(false);
        let app = Self {
            settings,
            clock,
            store,
            freshness,
            caches,
            counters,
            keyspace,
            draining,
            withdrawals: Withdrawals::default(),
            announcements,
        };
        Ok((app, waiting))
    }

    /// Opens the database that the settings name.
    pub async fn open_store(settings: &Settings) -> Result<Store> {
        match &settings.engines {
            Engines::Embedded { data_dir } => Store::open(&data_dir.join(DATABASE_FILE)).await,
            Engines::Replica { database_url, .. } => {
                Store::connect(database_url, settings.database_connections_max).await
            }
        }
    }

    /// Commits, and then tells every cache what has changed: its own before this returns.
    pub async fn commit(&self, tx: Tx) -> Result<()> {
        let changed = tx.commit().await?;
        if changed.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        for subject in &changed {
            self.freshness.changed(subject);
            text.push_str(&subject.to_string());
            text.push('\n');
        }
        // A full queue loses nothing: the change log carries the same.
        let _ = self.announcements.try_send(text);
        Ok(())
    }
}
