//! Provides replicas whose connections to Postgres and Redis can be cut one by one.

use std::process::Command;
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor as _};
use tempfile::TempDir;

use crate::engines::{Postgres, directory};
use crate::faults::{ROOT_KEY, database, replica_command, start_proxy};
use crate::servers::{Proxy, Redis};
use crate::support::database::Database;
use crate::support::process::Server;
use crate::support::random_letters;

/// A replica with its own proxies to its servers.
pub struct Replica {
    pub server: Server,
    pub redis: Proxy,
    pub postgres: Proxy,
}

/// The servers and settings that the replicas share.
pub struct Stage {
    pub database: Database,
    pub redis: Redis,
    pub prefix: String,
    _postgres: Option<(Postgres, TempDir)>,
}

impl Stage {
    pub fn new() -> Self {
        Self::on(database(), None)
    }

    /// Starts a Postgres for this stage alone. A transaction that stays open delays what replicas may conclude in all databases
    /// of its server.
    pub fn with_own_postgres() -> Self {
        let directory = directory();
        let postgres = Postgres::start(directory.path(), || 0);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let database = runtime.block_on(Database::migrate(postgres.url()));
        Self::on(database, Some((postgres, directory)))
    }

    fn on(database: Database, postgres: Option<(Postgres, TempDir)>) -> Self {
        let prefix = format!("t{}:", random_letters());
        Self { database, redis: Redis::start(), prefix, _postgres: postgres }
    }

    pub fn command(&self, database_url: &str, redis_url: &str) -> Command {
        let mut command = replica_command(database_url, redis_url);
        // The machine may be compiling at the same time.
        command.env("KEYWARD_REDIS_PREFIX", &self.prefix).env("KEYWARD_REDIS_TIMEOUT_MS", "1000");
        command
    }

    pub fn replica(&self) -> Replica {
        self.replica_with(&[])
    }

    /// Starts a replica with these variables.
    pub fn replica_with(&self, variables: &[(&str, &str)]) -> Replica {
        let (database_url, postgres) = start_proxy(&self.database);
        let redis = Proxy::to(format!("127.0.0.1:{}", self.redis.port));
        let mut command = self.command(&database_url, &format!("redis://{}", redis.address));
        command.envs(variables.iter().copied());
        Replica { server: Server::start(command), redis, postgres }
    }

    /// Starts two replicas that both rely on announcements, according to the database.
    pub fn pair(&self) -> (Replica, Replica) {
        let pair = (self.replica(), self.replica());
        self.await_readers(2);
        pair
    }

    pub fn await_readers(&self, wanted: usize) {
        let since = Stopwatch::new();
        let is_reading = |replica: &&Value| replica["readsAnnouncements"] == true;
        while self.replicas().iter().filter(is_reading).count() != wanted {
            assert!(since.elapsed() < Duration::from_secs(10), "{:?}", self.replicas());
            std::thread::sleep(Duration::from_millis(50));
        }
        self.await_earlier_transactions();
    }

    /// Waits until all replicas know that earlier transactions have ended, including those of other tests, which may be
    /// changes that wait for a replica. After two seconds replicas wait only for those that changed this database.
    fn await_earlier_transactions(&self) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut connection = self.database.connect().await;
            let mut number = async |function: &str| -> i64 {
                let number =
                    format!("SELECT CAST(CAST({function}(pg_current_snapshot()) AS TEXT) AS INT8)");
                sqlx::query_scalar(AssertSqlSafe(number)).fetch_one(&mut connection).await.unwrap()
            };
            let (next, since) = (number("pg_snapshot_xmax").await, Stopwatch::new());
            while number("pg_snapshot_xmin").await < next && since.elapsed().as_secs() < 3 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        // The time of two reads of the change log.
        std::thread::sleep(Duration::from_secs(1));
    }

    pub fn replicas(&self) -> Vec<Value> {
        self.run(&["replica", "list"]).as_array().unwrap().clone()
    }

    /// Runs a command. Returns its output.
    pub fn run(&self, arguments: &[&str]) -> Value {
        self.run_with_redis(&self.redis.url(), arguments)
    }

    /// Like [`Stage::run`], with Redis at this URL.
    pub fn run_with_redis(&self, redis_url: &str, arguments: &[&str]) -> Value {
        let mut command = self.command(&self.database.url, redis_url);
        let output = command.args(arguments).arg("--json").output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    pub fn feed(&self) -> String {
        format!("{}feed", self.prefix)
    }
}

/// A key and its id.
pub struct Key {
    pub id: String,
    pub key: String,
}

impl Replica {
    pub fn ok(&self, operation: &str, body: &Value) -> Value {
        let (status, answer) = self.server.v2(ROOT_KEY, operation, body);
        assert_eq!(status, 200, "{operation}: {answer}");
        answer["data"].clone()
    }

    pub fn create_key(&self) -> Key {
        self.create_key_with(&json!({}))
    }

    /// Creates a key with these fields.
    pub fn create_key_with(&self, fields: &Value) -> Key {
        let mut request = fields.clone();
        request["apiId"] =
            self.ok("apis.createApi", &json!({ "name": "payments" }))["apiId"].clone();
        let key = self.ok("keys.createKey", &request);
        let text = |name: &str| key[name].as_str().unwrap().to_owned();
        Key { id: text("keyId"), key: text("key") }
    }

    pub fn disable(&self, key: &Key) -> u16 {
        self.server.v2(ROOT_KEY, "keys.updateKey", &json!({ "keyId": key.id, "enabled": false })).0
    }

    /// Verifies a key. Returns the code, or the status if there is no code.
    pub fn verification_code(&self, key: &Key) -> String {
        let (status, answer) =
            self.server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key.key }));
        answer["data"]["code"].as_str().map_or_else(|| status.to_string(), str::to_owned)
    }

    #[track_caller]
    pub fn assert_code(&self, key: &Key, code: &str) {
        assert_eq!(self.verification_code(key), code);
    }

    /// Fails unless a verification has this code before this many seconds have passed.
    #[track_caller]
    pub fn wait_for_code(&self, key: &Key, code: &str, seconds: f32) {
        let since = Stopwatch::new();
        while self.verification_code(key) != code {
            assert!(
                since.elapsed().as_secs_f32() < seconds,
                "still {}",
                self.verification_code(key)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Fails unless each verification has this code for this many seconds.
    #[track_caller]
    pub fn assert_code_stays(&self, key: &Key, code: &str, seconds: f32) {
        let since = Stopwatch::new();
        while since.elapsed().as_secs_f32() < seconds {
            self.assert_code(key, code);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Starts a transaction on its own connection and runs the statements in it.
pub async fn begin_transaction(database: &Database, statements: &[&str]) -> PgConnection {
    let mut connection = database.connect().await;
    for statement in ["BEGIN"].iter().chain(statements) {
        connection.execute(AssertSqlSafe(*statement)).await.expect("the statement succeeds");
    }
    connection
}
