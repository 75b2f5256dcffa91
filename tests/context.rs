//! Tests the context of a replica without the tasks beside it: what it knows, it has learned in its own calls.

mod commits;
mod standby;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use domain::context::Context;
use foundation::clock::{Clock, Monotonic};
use foundation::config::{Config, Deployment, RegionSettings, Settings};
use foundation::error::Error;
use foundation::vault::{MasterKey, MasterKeys, file};
use store::Store;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::support::database::Database;
use crate::support::{random_letters, redis_url};

/// A replica that reads neither the change log nor announcements.
struct Replica {
    context: Context,
    /// What it would announce.
    announcements: mpsc::Receiver<String>,
    database: Arc<Database>,
}

impl Replica {
    async fn start(change: impl FnOnce(&mut Settings)) -> Self {
        Self::start_on(&Arc::new(Database::create().await), change).await
    }

    async fn start_on(database: &Arc<Database>, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = default_settings();
        // The machine may be compiling at the same time.
        settings.redis_timeout_ms = 5_000;
        settings.redis_prefix = format!("t{}:", random_letters());
        settings.database_connections_max = 2;
        settings.deployment =
            Deployment::Replica { database_url: database.url.clone(), redis_url: redis_url() };
        change(&mut settings);
        let store = Context::open_store(&settings).await.unwrap();
        let (context, announcements) = Context::new(settings, Clock::System).unwrap();
        context.redis.as_ref().unwrap().connect(Duration::from_secs(5)).await.unwrap();
        context.store.set(store);
        Self { context, announcements, database: database.clone() }
    }

    fn store(&self) -> &Store {
        self.context.store.store().unwrap()
    }

    async fn register(&self) {
        self.context.register_replica(self.store()).await.unwrap();
    }

    /// Registers other replicas of these regions, each under the name of its region.
    async fn register_others(&self, regions: &[&str]) {
        let mut tx = self.store().begin().await.unwrap();
        for region in regions {
            tx.register_replica(&format!("rep_{region}"), region, 1, 1).await.unwrap();
        }
        tx.commit().await.unwrap();
    }

    fn others(&self) -> Vec<String> {
        self.context.feed_state.other_replicas.load_full().to_vec()
    }
}

fn default_settings() -> Settings {
    let mut settings = Config::default().validate().unwrap();
    // A test has few keys.
    settings.cache_bytes_max = 1 << 20;
    settings
}

#[tokio::test]
async fn replicas_know_each_other_and_their_heartbeats_when_they_have_registered() {
    let first = Replica::start(|_| {}).await;
    let second = Replica::start_on(&first.database, |_| {}).await;
    let mut replicas = [first, second];
    replicas.sort_by_key(|replica| replica.context.replica_id.clone());
    assert!(replicas.iter().all(|replica| !replica.context.is_registered()));

    for _ in 0..2 {
        for replica in &replicas {
            replica.register().await;
        }
        sleep(Duration::from_millis(20)).await;
    }

    let ids = [0, 1].map(|rank: usize| replicas[rank].context.replica_id.clone());
    for (rank, replica) in replicas.iter().enumerate() {
        let Replica { context, .. } = replica;
        assert!(context.is_registered());
        assert_eq!(context.live_replicas.load(Ordering::Relaxed), 2);
        assert_eq!(u32::try_from(rank), Ok(context.replica_rank.load(Ordering::Relaxed)));
        assert_eq!(replica.others(), [ids[1 - rank].clone()]);
        let stored = replica.store().read().await.unwrap().find_heartbeat(&ids[rank]).await;
        assert_eq!(stored.unwrap(), Some(2));
        let (heartbeats, now) = (context.heartbeats.lock(), Monotonic::now());
        let is_dated =
            |number| heartbeats.date_row(Some(number), &context.freshness, now).is_some();
        assert_eq!([0, 1, 2, 3].map(is_dated), [false, true, true, false]);
        assert!(heartbeats.find_delay(0, now) > Duration::ZERO);
    }
}

#[tokio::test]
async fn replica_counts_the_readers_of_its_own_region() {
    let only = Replica::start(|_| {}).await;
    only.register_others(&["", "eu", "us"]).await;
    let regions = RegionSettings {
        names: vec!["eu".into(), "us".into()],
        own: 1,
        others: vec![(0, redis_url())],
    };
    let change = |settings: &mut Settings| settings.regions = Some(regions);
    let in_us = Replica::start_on(&only.database, change).await;

    only.register().await;
    in_us.register().await;

    assert_eq!(only.others(), ["rep_", "rep_eu", "rep_us"], "there is one region");
    assert_eq!(in_us.others(), ["rep_us"]);
    assert_eq!(in_us.context.live_replicas.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn read_is_repeated_only_when_its_connection_was_lost() {
    let replica = Replica::start(|_| {}).await;
    drop(replica.store().read().await.unwrap());
    for (losses, expected) in [(0, 1), (1, 2)] {
        let reads = AtomicU32::new(0);
        let read = || async {
            match reads.fetch_add(1, Ordering::Relaxed) < losses {
                true => Err(Error::Store(sqlx::Error::Io(ErrorKind::BrokenPipe.into()))),
                false => Ok(7),
            }
        };

        assert_eq!(replica.context.read_again_if_lost(read).await.unwrap(), 7);
        assert_eq!(reads.load(Ordering::Relaxed), expected);
    }

    let reads = AtomicU32::new(0);
    let fail = || async {
        reads.fetch_add(1, Ordering::Relaxed);
        Err::<i64, _>(Error::PathNotFound)
    };
    let failed = replica.context.read_again_if_lost(fail).await;
    assert!(matches!(failed, Err(Error::PathNotFound)), "{failed:?}");
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn distance_of_every_region_is_known_when_each_redis_was_connected_to() {
    let regions = RegionSettings {
        names: vec!["eu".into(), "us".into()],
        own: 0,
        others: vec![(1, redis_url())],
    };
    let mut settings = default_settings();
    let database_url = "postgres://127.0.0.1:1/none".into();
    settings.deployment = Deployment::Replica { database_url, redis_url: redis_url() };
    settings.redis_prefix = format!("t{}:", random_letters());
    settings.regions = Some(regions);
    let context = Context::new(settings, Clock::System).unwrap().0;
    let own = context.redis.as_ref().unwrap();
    let (_, other) = context.regions.as_ref().unwrap().others().next().unwrap();
    assert_eq!((own.round_trip(), other.round_trip()), (None, None));

    context.connect_redis().await;

    assert!(own.round_trip().is_some() && other.round_trip().is_some());
}

#[test]
fn master_key_of_an_embedded_server_is_read_from_its_file_unless_one_is_configured() {
    let directory = tempfile::tempdir().unwrap();
    let create_context = |configured: Option<MasterKeys>| {
        let mut settings = default_settings();
        settings.deployment = Deployment::Embedded { data_dir: directory.path().to_owned() };
        settings.master_keys = configured;
        Context::new(settings, Clock::System).unwrap().0
    };
    let current_id =
        |context: &Context| context.master_keys.load_full().map(|keys| keys.current_key.id.clone());
    let current_key = MasterKey::parse(&"5a".repeat(32)).unwrap();
    let configured_id = current_key.id.clone();
    let configured = create_context(Some(MasterKeys { current_key, previous_key: None }));
    let embedded = create_context(None);
    assert!(!embedded.reload_master_keys());
    assert_eq!(current_id(&embedded), None, "there is no file");

    let created = file::create(directory.path()).unwrap();

    assert!(embedded.reload_master_keys());
    assert_eq!(current_id(&embedded), Some(created.current_key.id.clone()));
    assert!(!configured.reload_master_keys());
    assert_eq!(current_id(&configured), Some(configured_id));
}
