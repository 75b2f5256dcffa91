//! Tests reports of withheld leases, by a replica whose background tasks the test runs itself.

use domain::app::App;
use domain::context::Context;
use domain::credits;
use foundation::clock::Clock;
use foundation::config::Config;

use super::*;
use crate::support::NOON;
use crate::support::database::Database;

pub(super) struct Fixture {
    pub(super) app: App,
    session: PgConnection,
    _database: Database,
}

impl Fixture {
    /// Starts a registered replica, and creates an API in its database.
    pub(super) async fn start() -> Self {
        let database = Database::create().await;
        let mut settings = Config::default().validate().unwrap();
        settings.deployment =
            Deployment::Replica { database_url: database.url.clone(), redis_url: redis_url() };
        // The machine may be compiling at the same time.
        settings.redis_timeout_ms = 5_000;
        settings.database_connections_max = 4;
        settings.cache_bytes_max = 1 << 20;
        let store = Context::open_store(&settings).await.unwrap();
        let (app, _announcements) = App::new(settings, Clock::fixed_at(NOON)).unwrap();
        app.context.register_replica(&store).await.unwrap();
        app.context.store.set(store);
        let session = database.connect().await;
        let mut fixture = Self { app, session, _database: database };
        for sql in [
            "INSERT INTO workspaces (id, name, created_at) VALUES ('ws', 'a workspace', 1)",
            "INSERT INTO apis (id, workspace_id, name, created_at) VALUES ('api', 'ws', 'an API', 1)",
        ] {
            fixture.execute(sql).await;
        }
        fixture
    }

    pub(super) async fn execute(&mut self, sql: &str) {
        self.session.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    }

    /// Creates keys without credits, with these numbers. A lease of each holds 10 credits, and was withheld at the time
    /// of its number.
    pub(super) async fn create_withheld_leases(&mut self, first: i64, last: i64) {
        let keys = format!(
            "INSERT INTO keys (id, workspace_id, api_id, hash, start, byte_length, enabled, credits,
                created_at)
            SELECT 'key_' || n, 'ws', 'api', 'hash_' || n, 'start', 16, TRUE, 0, 1
            FROM generate_series({first}, {last}) AS n"
        );
        let leases = format!(
            "INSERT INTO purses (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by,
                withheld_at, number)
            SELECT 'key_' || n, 1, 7, 10, 0, 1, 1, 'rep_killed', n, n
            FROM generate_series({first}, {last}) AS n"
        );
        self.execute(&keys).await;
        self.execute(&leases).await;
    }

    /// Returns the number of rows of a table.
    pub(super) async fn count_rows(&mut self, table: &str) -> i64 {
        let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
        sqlx::query_scalar(sql).fetch_one(&mut self.session).await.unwrap()
    }

    /// Returns the credits of all accounts: those that were returned.
    pub(super) async fn sum_balances(&mut self) -> i64 {
        let sql = "SELECT CAST(COALESCE(SUM(credits), 0) AS BIGINT) FROM keys";
        sqlx::query_scalar(sql).fetch_one(&mut self.session).await.unwrap()
    }
}

#[tokio::test]
async fn recently_withheld_leases_are_reported_at_once_and_others_by_the_sweep() {
    let mut fixture = Fixture::start().await;
    fixture.create_withheld_leases(20_000, 20_000).await;
    credits::report_lost_leases(&fixture.app.ledger).await.unwrap();
    assert_eq!(fixture.sum_balances().await, 10);

    // A report includes leases that were withheld up to 10 s before the latest one.
    fixture.create_withheld_leases(9_999, 10_001).await;
    credits::report_lost_leases(&fixture.app.ledger).await.unwrap();
    assert_eq!((fixture.sum_balances().await, fixture.count_rows("purses").await), (30, 1));
    credits::report_and_sweep_all(&fixture.app.ledger).await.unwrap();
    assert_eq!((fixture.sum_balances().await, fixture.count_rows("purses").await), (40, 0));
}

#[tokio::test]
async fn sweep_returns_leases_of_all_pages_that_wait_for_no_report_any_more() {
    let mut fixture = Fixture::start().await;
    fixture.execute("INSERT INTO replicas (id, started_at, seen_at) VALUES ('rep_b', 1, 1)").await;
    fixture.create_withheld_leases(1, 1_001).await;
    credits::report_lost_leases(&fixture.app.ledger).await.unwrap();
    let reported = fixture.count_rows("purse_accounts").await;
    assert_eq!((reported, fixture.sum_balances().await), (1_001, 0));

    // The other replica knows of all of them but the last one.
    let sql = "UPDATE replicas SET silent_seen_at = seen_at, gone = 1001 WHERE id = 'rep_b'";
    fixture.execute(sql).await;
    credits::report_and_sweep_all(&fixture.app.ledger).await.unwrap();
    assert_eq!((fixture.count_rows("purses").await, fixture.sum_balances().await), (1_000, 10));

    fixture.execute("DELETE FROM replicas WHERE id = 'rep_b'").await;
    credits::report_and_sweep_all(&fixture.app.ledger).await.unwrap();
    assert_eq!((fixture.count_rows("purses").await, fixture.sum_balances().await), (0, 10_010));
}

#[tokio::test]
async fn credits_of_a_locked_account_are_returned_by_the_next_pass() {
    let mut fixture = Fixture::start().await;
    fixture.create_withheld_leases(1, 2).await;
    fixture.execute("BEGIN").await;
    fixture.execute("SELECT 1 FROM keys WHERE id = 'key_1' FOR UPDATE").await;
    credits::report_lost_leases(&fixture.app.ledger).await.unwrap();
    assert_eq!((fixture.count_rows("purses").await, fixture.sum_balances().await), (1, 10));

    fixture.execute("COMMIT").await;
    credits::report_lost_leases(&fixture.app.ledger).await.unwrap();

    assert_eq!((fixture.count_rows("purses").await, fixture.sum_balances().await), (0, 20));
}

/// Its number must be drawn after the end of its registration is committed: then it knows of no lease of a higher one.
#[tokio::test]
async fn silent_replica_is_counted_out_one_pass_after_its_registration_has_ended() {
    let mut fixture = Fixture::start().await;
    fixture.execute("INSERT INTO replicas (id, started_at, seen_at) VALUES ('rep_b', 1, 1)").await;
    let silent = "replicas WHERE id = 'rep_b' AND silent_seen_at = seen_at";
    let counted_out = "replicas WHERE id = 'rep_b' AND gone IS NOT NULL";

    credits::deregister_silent_replicas(&fixture.app.context).await.unwrap();
    assert_eq!((fixture.count_rows(silent).await, fixture.count_rows(counted_out).await), (1, 0));
    credits::deregister_silent_replicas(&fixture.app.context).await.unwrap();
    assert_eq!((fixture.count_rows(silent).await, fixture.count_rows(counted_out).await), (1, 1));

    let alive = "replicas WHERE silent_seen_at IS NULL AND gone IS NULL";
    assert_eq!(fixture.count_rows(alive).await, 1, "the replica that does this");
}
