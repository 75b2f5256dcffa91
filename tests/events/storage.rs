//! Tests the storage of events: on the disk of an embedded server, and in the database; and the role that reads them.

use analytics::EVENTS_FILE;
use analytics::event_space::{self, DiskReserve};
use analytics::writer;
use foundation::config::Deployment;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use store::events::EventDatabase;
use url::Url;

use super::buffer::metric;
use crate::support::{Keyward, Stack, random_letters, server_url};

const DAY_MS: i64 = 86_400_000;
const DROPPED: &str = "keyward_events_dropped_total{kind=\"verification\"}";

/// Thirty thousand copies of the only event, one second apart; about five million bytes.
const MANY: &str = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 30000)
    INSERT INTO verifications
    SELECT time - 30000000 + 1000 * n, series, batch, request_id, spent_credits, latency_us, region, reason
    FROM verifications CROSS JOIN n";

async fn events(kw: &Keyward) -> usize {
    kw.query_events("SELECT request_id FROM verifications").await.len()
}

/// Starts a server whose events have a limit of a mebibyte.
async fn start_limited(stack: Stack) -> Keyward {
    let kw = Keyward::start_with(stack, |settings| settings.events_max_bytes = Some(1 << 20)).await;
    kw.write_events().await;
    kw
}

/// Stores events that exceed the limit.
async fn fill(kw: &Keyward) {
    let key = kw.create_key(json!({})).await;
    kw.verify(&key.key).await.assert_code("VALID");
    kw.write_events().await;
    kw.change_events(MANY).await;
    kw.change_events("ANALYZE verifications").await;
}

async fn start_full(stack: Stack) -> Keyward {
    let kw = start_limited(stack).await;
    writer::maintain_partitions(&kw.app.analytics).await.unwrap();
    fill(&kw).await;
    kw
}

async fn assert_oldest_events_are_deleted(stack: Stack) {
    let kw = start_full(stack).await;
    let since = kw.app.analytics.event_store().oldest_raw_event().await.unwrap();

    // Nothing is deleted before it has been rolled up.
    kw.app
        .analytics
        .event_store()
        .trim_raw_events(1 << 20, kw.app.context.clock.now())
        .await
        .unwrap();
    assert_eq!(events(&kw).await, 30_001);
    event_space::trim_raw_events(&kw.app.analytics).await.unwrap();

    let left = events(&kw).await;
    assert!((3_000..10_000).contains(&left), "{left} events are left");
    assert!(kw.app.analytics.event_store().oldest_raw_event().await.unwrap() > since);
    let sums = kw.query_events("SELECT CAST(count AS TEXT) FROM verifications_per_day").await;
    assert_eq!(sums, ["1"]);
    let newest = "SELECT CAST(COUNT(*) AS TEXT) FROM verifications WHERE time = (SELECT MAX(time) FROM verifications)";
    assert_ne!(kw.query_events(newest).await, ["0"]);
    kw.change_events("ANALYZE verifications").await;
    event_space::trim_raw_events(&kw.app.analytics).await.unwrap();
    let still = events(&kw).await;
    assert!(still >= left * 8 / 10, "{still} of {left} events are left");
}

#[tokio::test]
async fn oldest_events_are_deleted_when_size_exceeds_limit_embedded() {
    assert_oldest_events_are_deleted(Stack::Embedded).await;
}

#[tokio::test]
async fn oldest_events_are_deleted_when_size_exceeds_limit_replica() {
    assert_oldest_events_are_deleted(Stack::Replica).await;
}

/// The number of events without a reason, and with the longest reason.
const SHORT: i64 = 30_000;
const LONG: i64 = 3_000;

/// Copies the only event, with a tenth of a second between copies. The copies from `first` to `last` have a reason of 1
/// KiB.
async fn copy_with_reasons(kw: &Keyward, first: i64, last: i64) {
    let copies = SHORT + LONG;
    let sql = format!(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {copies})
        INSERT INTO verifications
        SELECT time - 100 * {copies} + 100 * n, series, batch, request_id, spent_credits, latency_us, region,
            CASE WHEN n BETWEEN {first} AND {last} THEN '{}' ELSE '' END
        FROM verifications CROSS JOIN n",
        "r".repeat(1024)
    );
    kw.change_events(String::leak(sql)).await;
    kw.change_events("ANALYZE verifications").await;
}

/// Returns the size of the rows in bytes.
async fn stored_bytes(kw: &Keyward) -> i64 {
    let sql = match kw.stack {
        Stack::Embedded => {
            "SELECT CAST(SUM(110 + octet_length(request_id) + octet_length(region) + octet_length(reason)) AS TEXT)
            FROM verifications"
        }
        Stack::Replica => "SELECT CAST(SUM(24 + pg_column_size(v)) AS TEXT) FROM verifications v",
    };
    kw.query_events(sql).await[0].parse().unwrap()
}

/// Checks that only the excess is deleted, whatever the sizes of the first or the last events.
async fn assert_trim_leaves_what_fits(stack: Stack) {
    let last = SHORT + LONG;
    for (first_long, last_long) in [(1, LONG), (SHORT + 1, last)] {
        let kw = Keyward::start_with(stack, |_| ()).await;
        kw.write_events().await;
        writer::maintain_partitions(&kw.app.analytics).await.unwrap();
        kw.verify(&kw.create_key(json!({})).await.key).await.assert_code("VALID");
        kw.write_events().await;
        copy_with_reasons(&kw, first_long, last_long).await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        let before = stored_bytes(&kw).await;
        let estimate = i64::try_from(
            kw.app.analytics.event_store().measure_raw_events().await.unwrap().size_bytes,
        )
        .unwrap();

        let max = before * 3 / 4;
        kw.app
            .analytics
            .event_store()
            .trim_raw_events(max.unsigned_abs(), kw.app.context.clock.now())
            .await
            .unwrap();

        let after = stored_bytes(&kw).await;
        let case = format!(
            "long from {first_long}: {estimate} of {before} bytes, {after} of {max} are left"
        );
        assert!((before * 7 / 10..before * 13 / 10).contains(&estimate), "{case}");
        assert!((max * 8 / 10..=max * 12 / 10).contains(&after), "{case}");
    }
}

#[tokio::test]
async fn trim_keeps_what_fits_when_events_differ_in_size_embedded() {
    assert_trim_leaves_what_fits(Stack::Embedded).await;
}

#[tokio::test]
async fn trim_keeps_what_fits_when_events_differ_in_size_replica() {
    assert_trim_leaves_what_fits(Stack::Replica).await;
}

#[tokio::test]
async fn oldest_events_in_no_partition_of_a_day_are_deleted_before_later_days() {
    let kw = start_limited(Stack::Replica).await;
    fill(&kw).await;
    kw.clock.advance_ms(DAY_MS);
    writer::maintain_partitions(&kw.app.analytics).await.unwrap();
    kw.verify(&kw.create_key(json!({})).await.key).await.assert_code("VALID");
    kw.write_events().await;
    kw.clock.advance_ms(DAY_MS);

    event_space::trim_raw_events(&kw.app.analytics).await.unwrap();

    let left = events(&kw).await;
    assert!((2_000..10_000).contains(&left), "{left} events are left");
    let size = kw.app.analytics.event_store().measure_raw_events().await.unwrap().size_bytes;
    assert!(size < 2 << 20, "{size} bytes");
    let yesterday = "SELECT request_id FROM verifications_p20260311";
    assert_eq!(kw.query_events(yesterday).await.len(), 1);
}

#[tokio::test]
async fn past_days_are_dropped_as_a_whole() {
    let kw = start_full(Stack::Replica).await;
    writer::roll_up(&kw.app.analytics).await.unwrap();
    kw.clock.advance_ms(DAY_MS);
    writer::maintain_partitions(&kw.app.analytics).await.unwrap();

    event_space::trim_raw_events(&kw.app.analytics).await.unwrap();

    assert_eq!(events(&kw).await, 0);
    let partitions = kw.query_events("SELECT CAST(relname AS TEXT) FROM pg_class WHERE relname LIKE 'verifications\\_p2%' AND relkind = 'r'").await;
    assert!(!partitions.contains(&"verifications_p20260310".to_owned()), "{partitions:?}");
    assert_eq!(
        kw.query_events("SELECT CAST(count AS TEXT) FROM verifications_per_day").await,
        ["1"]
    );
}

#[tokio::test]
async fn events_are_dropped_when_disk_is_below_its_reserve() {
    /// Half of the space that is filled; other tests write at the same time.
    const MARGIN_BYTES: u64 = 256 << 20;
    let kw = Keyward::start_with(Stack::Embedded, |settings| {
        settings.events_reserve_bytes = 0;
        let free =
            DiskReserve::from_settings(settings).read_free_bytes().expect("the system tells");
        settings.events_reserve_bytes = free.saturating_sub(MARGIN_BYTES);
    })
    .await;
    let Deployment::Embedded { data_dir } = &kw.app.context.settings.deployment else {
        unreachable!()
    };
    let key = kw.create_key(json!({ "credits": { "remaining": 100 } })).await;
    kw.verify(&key.key).await.assert_code("VALID");
    kw.write_events().await;
    assert_eq!(events(&kw).await, 1);

    let ballast = data_dir.join("ballast");
    let zeros = vec![0_u8; 1 << 20];
    let mut file = std::fs::File::create(&ballast).unwrap();
    for _ in 0..(2 * MARGIN_BYTES) >> 20 {
        std::io::Write::write_all(&mut file, &zeros).unwrap();
    }
    let size = || std::fs::metadata(data_dir.join(EVENTS_FILE)).unwrap().len();
    let before = size();
    for _ in 0..3 {
        kw.verify(&key.key).await.assert_code("VALID");
    }
    assert_eq!(writer::write_buffered(&kw.app.analytics).await.unwrap(), 0);
    assert_eq!((metric(&kw, DROPPED).await, size()), (3, before));
    // Keys and credits are still written.
    kw.verify(&kw.create_key(json!({})).await.key).await.assert_code("VALID");
    assert_eq!(writer::write_buffered(&kw.app.analytics).await.unwrap(), 0);

    drop(file);
    std::fs::remove_file(ballast).unwrap();
    kw.verify(&key.key).await.assert_code("VALID");
    assert_eq!(writer::write_buffered(&kw.app.analytics).await.unwrap(), 1);
    assert_eq!(events(&kw).await, 2);
}

/// A private role on the test's server.
struct Role(String);

impl Role {
    async fn create() -> Self {
        let role = Self(format!("kw-\"{}", random_letters()));
        role.run(&format!("CREATE ROLE {} LOGIN PASSWORD 'secret'", role.quoted_name())).await;
        role
    }

    fn quoted_name(&self) -> String {
        format!("\"{}\"", self.0.replace('"', "\"\""))
    }

    async fn run(&self, sql: &str) {
        let url = server_url("KEYWARD_TEST_DATABASE_URL");
        let mut admin = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut admin).await.unwrap();
    }
}

#[tokio::test]
async fn analytics_role_reads_only_events() {
    let role = Role::create().await;
    let kw = Keyward::start_with(Stack::Replica, |settings| {
        let Deployment::Replica { database_url, .. } = &settings.deployment else { unreachable!() };
        let mut url = Url::parse(database_url).unwrap();
        url.set_username(&role.0).unwrap();
        url.set_password(Some("secret")).unwrap();
        settings.analytics_url = Some(url.into());
    })
    .await;
    let key = kw.create_key(json!({})).await;
    kw.verify(&key.key).await.assert_code("VALID");
    kw.write_events().await;
    let query_request = || {
        let query =
            "SELECT outcome, groupArray(key_id) AS k FROM key_verifications_v1 GROUP BY outcome";
        kw.v2("analytics.getVerifications", json!({ "query": query }))
    };

    query_request().await.assert_error(503, "service_unavailable");
    for _ in 0..2 {
        kw.app.analytics.event_store().grant_analytics_role().await.unwrap();
    }
    let reply = query_request().await;

    assert_eq!(reply.status, 200, "{}", reply.text);
    for table in ["verifications_per_hour_v1", "verifications_per_month_v1"] {
        let query = format!("SELECT sum(count) AS n FROM key_{table}");
        let reply = kw.v2("analytics.getVerifications", json!({ "query": query })).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
    }
    let known = kw
        .app
        .analytics
        .event_store()
        .find_analytics_role()
        .await
        .unwrap()
        .expect("the store is Postgres");
    assert!(!known.is_superuser && !known.reads_other_tables && !known.writes_events, "{known:?}");
    let EventDatabase::Postgres { analytics, .. } = &kw.app.analytics.event_store().database else {
        unreachable!()
    };
    for sql in
        ["SELECT 1 FROM public.keys", "SELECT 1 FROM void_deliveries", "SELECT 1 FROM pg_authid"]
    {
        let refused =
            sqlx::query(sql).execute(&analytics.get()).await.expect_err("the role has no access");
        let code = refused.as_database_error().and_then(|e| e.code().map(|code| code.to_string()));
        assert_eq!(code.as_deref(), Some("42501"), "{sql}: {refused}");
    }
    let changed = sqlx::query("DELETE FROM verifications").execute(&analytics.get()).await;
    assert!(changed.is_err());
}
