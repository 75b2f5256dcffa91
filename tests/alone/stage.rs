//! Replicas whose ways to their servers can be cut one by one, and what is asked of them.

use std::process::Command;
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor as _};

use crate::faults::{ROOT_KEY, database, proxied, replica_command};
use crate::servers::{Proxy, Redis};
use crate::support::database::Database;
use crate::support::process::Server;
use crate::support::random;

/// A replica with ways of its own to its servers.
pub struct Replica {
    pub server: Server,
    pub redis: Proxy,
    pub postgres: Proxy,
}

/// Servers, and what replicas on them have in common.
pub struct Stage {
    pub database: Database,
    pub redis: Redis,
    pub prefix: String,
}

impl Stage {
    pub fn new() -> Self {
        Self { database: database(), redis: Redis::start(), prefix: format!("t{}:", random()) }
    }

    pub fn command(&self, database_url: &str, redis_url: &str) -> Command {
        let mut command = replica_command(database_url, redis_url);
        // A machine that compiles meanwhile is slow.
        command.env("KEYWARD_REDIS_PREFIX", &self.prefix).env("KEYWARD_REDIS_TIMEOUT_MS", "1000");
        command
    }

    pub fn replica(&self) -> Replica {
        self.replica_with(&[])
    }

    /// A replica with these variables.
    pub fn replica_with(&self, variables: &[(&str, &str)]) -> Replica {
        let (database_url, postgres) = proxied(&self.database);
        let redis = Proxy::to(format!("127.0.0.1:{}", self.redis.port));
        let mut command = self.command(&database_url, &format!("redis://{}", redis.address));
        command.envs(variables.iter().copied());
        Replica { server: Server::start(command), redis, postgres }
    }

    /// Two replicas that both rely on announcements, as the database says.
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
        // Until the transactions of before have ended, which other tests' servers may have as well.
        std::thread::sleep(Duration::from_secs(1));
    }

    pub fn replicas(&self) -> Vec<Value> {
        self.run(&["replica", "list"]).as_array().unwrap().clone()
    }

    /// What a command prints.
    pub fn run(&self, arguments: &[&str]) -> Value {
        let mut command = self.command(&self.database.url, &self.redis.url());
        let output = command.args(arguments).arg("--json").output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    pub fn feed(&self) -> String {
        format!("{}feed", self.prefix)
    }
}

/// A key, by its id and itself.
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

    pub fn key(&self) -> Key {
        self.key_with(&json!({}))
    }

    /// A new key with these fields.
    pub fn key_with(&self, fields: &Value) -> Key {
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

    /// What a verification comes to: its code, or the status where there is none.
    pub fn code(&self, key: &Key) -> String {
        let (status, answer) =
            self.server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key.key }));
        answer["data"]["code"].as_str().map_or_else(|| status.to_string(), str::to_owned)
    }

    #[track_caller]
    pub fn is(&self, key: &Key, code: &str) {
        assert_eq!(self.code(key), code);
    }

    /// Fails unless a verification comes to this before so many seconds have passed.
    #[track_caller]
    pub fn comes_to(&self, key: &Key, code: &str, seconds: f32) {
        let since = Stopwatch::new();
        while self.code(key) != code {
            assert!(since.elapsed().as_secs_f32() < seconds, "it is still {}", self.code(key));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Fails unless each verification comes to this for so many seconds.
    #[track_caller]
    pub fn stays(&self, key: &Key, code: &str, seconds: f32) {
        let since = Stopwatch::new();
        while since.elapsed().as_secs_f32() < seconds {
            self.is(key, code);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Begins a transaction on a connection of its own, and does this in it.
pub async fn under_way(database: &Database, statements: &[&str]) -> PgConnection {
    let mut connection = database.connect().await;
    for statement in ["BEGIN"].iter().chain(statements) {
        connection.execute(AssertSqlSafe(*statement)).await.expect("it is done");
    }
    connection
}
