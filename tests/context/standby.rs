//! Tests reads on a standby, which is the primary itself here, so that it never lags by itself.

use foundation::clock::Stopwatch;
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::metrics::Counter;
use store::StandbyRow;
use store::cache::Cached;
use store::freshness::{CacheTag, ReadVersion};
use url::Url;

use super::*;
use crate::servers::Proxy;

fn tag() -> CacheTag {
    CacheTag::Key(KeyId::from("key_a"))
}

/// Returns a row that is dated by this heartbeat.
#[expect(clippy::unnecessary_wraps, reason = "a load may fail")]
fn row(heartbeat: Option<i64>) -> Result<Option<StandbyRow<i64>>> {
    Ok(Some(StandbyRow { value: 7, heartbeat }))
}

#[expect(clippy::unnecessary_wraps, reason = "a row may be absent")]
fn to_cached(value: i64, version: ReadVersion) -> Option<Cached<i64>> {
    Some(Cached::new(value, version, [tag()]))
}

impl Replica {
    /// Starts a registered replica that reads from a standby at this URL, or at that of its database.
    async fn start_with_standby(database: &Arc<Database>, url: Option<&Url>) -> Self {
        let replica = Self::start_on(database, |settings| {
            settings.database_connections_max = 1;
            settings.database_read_url = Some(url.map_or(&*database.url, Url::as_str).to_owned());
        });
        let replica = replica.await;
        replica.register().await;
        replica
    }

    /// Loads a row that the standby finds. Returns the value.
    async fn load(
        &self,
        found: Result<Option<StandbyRow<i64>>>,
        to_cached: impl FnOnce(i64, ReadVersion) -> Option<Cached<i64>>,
    ) -> Option<i64> {
        let cached = self.context.load_from_standby(|_, _| async move { found }, to_cached).await;
        cached.map(|cached| cached.value)
    }

    /// Returns how many loads were served, absent, of metered keys, stale, behind, failed and skipped.
    fn loads(&self) -> [u64; 7] {
        let loads = &self.context.metrics.read_replica.loads;
        [
            &loads.served,
            &loads.absent,
            &loads.metered,
            &loads.stale,
            &loads.lagging,
            &loads.failed,
            &loads.skipped,
        ]
        .map(Counter::get)
    }
}

#[tokio::test]
async fn standby_serves_fresh_rows_from_a_probe_until_it_fails_or_lags() {
    let database = Arc::new(Database::create().await);
    let replica = Replica::start_with_standby(&database, None).await;
    assert_eq!(replica.load(row(Some(1)), to_cached).await, None);
    assert_eq!(replica.loads(), [0, 0, 0, 0, 0, 0, 1], "not probed yet");
    replica.context.probe_standby().await;

    assert_eq!(replica.load(row(Some(1)), to_cached).await, Some(7));
    assert_eq!(replica.load(Ok(None), to_cached).await, None);
    assert_eq!(replica.load(row(Some(1)), |_, _| None).await, None);
    let change_and_cache = |value, version| {
        replica.context.freshness.record_invalidation(&tag());
        to_cached(value, version)
    };
    assert_eq!(replica.load(row(Some(1)), change_and_cache).await, None);
    assert_eq!(replica.loads(), [1, 1, 1, 1, 0, 0, 1]);

    for heartbeat in [None, Some(9)] {
        assert_eq!(replica.load(row(heartbeat), to_cached).await, None);
        assert_eq!(replica.load(row(Some(1)), to_cached).await, None, "it is skipped");
        replica.context.probe_standby().await;
    }
    assert_eq!(replica.loads(), [1, 1, 1, 1, 2, 0, 3]);

    assert_eq!(replica.load(Err(Error::StoreNotReady), to_cached).await, None);
    assert_eq!(replica.load(row(Some(1)), to_cached).await, None, "it is skipped");
    replica.register().await;
    replica.context.probe_standby().await;
    assert_eq!(replica.load(row(Some(2)), to_cached).await, Some(7));
    assert_eq!(replica.loads(), [2, 1, 1, 1, 2, 1, 4]);
}

#[tokio::test]
async fn connections_to_a_standby_that_never_replies_are_replaced() {
    let database = Arc::new(Database::create().await);
    let mut url: Url = database.url.parse().unwrap();
    let proxy = Proxy::to(url.socket_addrs(|| Some(5432)).unwrap()[0].to_string());
    url.set_ip_host(proxy.address.ip()).unwrap();
    url.set_port(Some(proxy.address.port())).unwrap();
    let replica = Replica::start_with_standby(&database, Some(&url)).await;
    replica.context.probe_standby().await;
    assert_eq!(replica.load(row(Some(1)), to_cached).await, Some(7));

    proxy.silence();
    replica.context.probe_standby().await;
    assert_eq!(replica.load(row(Some(1)), to_cached).await, None, "it has not replied");
    replica.register().await;
    replica.context.probe_standby().await;

    assert_eq!(replica.load(row(Some(2)), to_cached).await, Some(7));
}

#[tokio::test]
async fn closing_the_store_ends_every_connection_to_the_database_and_its_standby() {
    let database = Arc::new(Database::create().await);
    let replica = Replica::start_with_standby(&database, None).await;
    replica.context.probe_standby().await;
    let mut connection = database.connect().await;
    let mut count = async || -> i64 {
        let sql = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()
            AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
        sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap()
    };
    assert!(count().await >= 2);

    replica.context.close_store().await;

    assert!(replica.store().begin().await.is_err());
    let since = Stopwatch::new();
    while count().await > 0 {
        assert!(since.elapsed() < Duration::from_secs(10), "a connection stays open");
        sleep(Duration::from_millis(20)).await;
    }
}
