//! Provides a site: a primary and its streaming standby, a replica that reads from the standby, and one that writes.

use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;

use crate::engines::{self, Postgres, block_on};
use crate::faults::{ROOT_KEY, replica_command};
use crate::servers::{Proxy, Redis};
use crate::stage::{Key, Replica};
use crate::support::process::{Server, get};
use crate::support::random_letters;

pub struct Site {
    /// Reads uncached keys from the standby.
    pub reader: Replica,
    pub writer: Replica,
    pub standby: Postgres,
    pub primary: Postgres,
    pub redis: Redis,
    pub prefix: String,
    _directories: [tempfile::TempDir; 2],
}

impl Site {
    pub fn new() -> Self {
        Self::with_reader(&[])
    }

    /// Starts a site whose reader has these variables.
    pub fn with_reader(variables: &[(&str, &str)]) -> Self {
        let directories = [engines::directory(), engines::directory()];
        let primary = Postgres::start(directories[0].path(), || 0);
        let redis = Redis::start();
        let prefix = format!("t{}:", random_letters());
        let writer = start_replica(&primary, &redis, &prefix, &[]);
        let standby = primary.start_standby(directories[1].path(), primary.address());
        let read_url = standby.url();
        let with_url: Vec<_> = [("KEYWARD_DATABASE_READ_URL", read_url.as_str())]
            .into_iter()
            .chain(variables.iter().copied())
            .collect();
        let reader = start_replica(&primary, &redis, &prefix, &with_url);
        let site =
            Self { reader, writer, standby, primary, redis, prefix, _directories: directories };
        site.await_readers();
        site.await_use();
        site
    }

    /// Waits until both replicas rely on announcements, and earlier transactions have ended.
    fn await_readers(&self) {
        let sql = "SELECT COUNT(*) FROM replicas WHERE feed <> ''";
        wait("announcements are read", || count(&self.primary, sql) == 2);
        std::thread::sleep(Duration::from_secs(1));
    }

    /// Waits until the standby serves uncached keys.
    pub fn await_use(&self) {
        let keys = self.writer.create_keys(64);
        self.await_replay();
        let mut rest = keys.iter();
        let before = self.loads("served");
        wait("the standby is used", || {
            self.reader.assert_code(rest.next().expect("a key"), "VALID");
            self.loads("served") > before
        });
    }

    /// Waits until the standby has replayed what the primary has committed.
    pub fn await_replay(&self) {
        let sql = "SELECT CAST(pg_current_wal_lsn() - '0/0' AS BIGINT)";
        let end = count(&self.primary, sql);
        let sql = "SELECT CAST(pg_last_wal_replay_lsn() - '0/0' AS BIGINT)";
        wait("the standby replays", || count(&self.standby, sql) >= end);
    }

    pub fn pause_replay(&self) {
        self.standby.execute("SELECT pg_wal_replay_pause()");
        let sql = "SELECT CAST(pg_get_wal_replay_pause_state() = 'paused' AS INT)::BIGINT";
        wait("the replay is paused", || count(&self.standby, sql) == 1);
    }

    pub fn resume_replay(&self) {
        self.standby.execute("SELECT pg_wal_replay_resume()");
    }

    /// Creates a root key that no replica has cached.
    pub fn create_root_key(&self) -> String {
        let mut command = replica_command(&self.primary.url(), &self.redis.url());
        command.env("KEYWARD_REDIS_PREFIX", &self.prefix);
        command.args(["root-key", "create", "--permission", "api.*.verify_key"]);
        let output = command
            .args(["--permission", "ratelimit.*.limit", "--json"])
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let created: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        created["key"].as_str().expect("a root key").to_owned()
    }

    /// Returns how many loads of the reader had this result.
    pub fn loads(&self, result: &str) -> u64 {
        let sample = format!("keyward_read_replica_loads_total{{result=\"{result}\"}} ");
        self.metric(&sample).parse().expect("a number")
    }

    pub fn lag_seconds(&self) -> f64 {
        self.metric("keyward_read_replica_lag_seconds ").parse().expect("a number")
    }

    fn metric(&self, sample: &str) -> String {
        let (status, metrics) = get(self.reader.server.address, "/metrics").expect("a reply");
        assert_eq!(status, 200);
        let line = metrics.lines().find_map(|line| line.strip_prefix(sample));
        line.unwrap_or_else(|| panic!("{sample} is not in {metrics}")).to_owned()
    }
}

fn start_replica(
    primary: &Postgres,
    redis: &Redis,
    prefix: &str,
    variables: &[(&str, &str)],
) -> Replica {
    let (postgres, redis) =
        (Proxy::to(primary.address().to_string()), Proxy::to(format!("127.0.0.1:{}", redis.port)));
    let (database_url, redis_url) =
        (engines::url_at(postgres.address), format!("redis://{}", redis.address));
    let mut command = replica_command(&database_url, &redis_url);
    // The machine may be compiling at the same time.
    command.env("KEYWARD_REDIS_PREFIX", prefix).env("KEYWARD_REDIS_TIMEOUT_MS", "1000");
    command.envs(variables.iter().copied());
    Replica { server: Server::start(command), redis, postgres }
}

impl Replica {
    /// Creates keys of one API.
    pub fn create_keys(&self, keys: usize) -> Vec<Key> {
        let api = self.ok("apis.createApi", &json!({ "name": "payments" }))["apiId"].clone();
        let create = |_| {
            let key = self.ok("keys.createKey", &json!({ "apiId": api }));
            let text = |name: &str| key[name].as_str().expect("a text").to_owned();
            Key { id: text("keyId"), key: text("key") }
        };
        (0..keys).map(create).collect()
    }

    /// Returns the status of an operation that changes something.
    pub fn change_status(&self) -> u16 {
        self.server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" })).0
    }
}

/// Waits up to 15 seconds.
pub fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Stopwatch::new();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(15), "not within 15 s: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn count(postgres: &Postgres, sql: &'static str) -> i64 {
    block_on(async {
        let mut connection = PgConnection::connect(&postgres.url()).await.expect("Postgres");
        sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a number")
    })
}
