//! The two deployments, for commands that must work on both: the data directory of an embedded server, and a database with
//! Redis.

use tempfile::TempDir;

use super::*;
use crate::support::clickhouse::ClickHouseDatabase;

/// A deployment without data.
pub struct Deployment {
    directory: TempDir,
    database: Option<Database>,
    redis_prefix: String,
    /// The ClickHouse database of the events, if they are not stored in the database.
    clickhouse: Option<ClickHouseDatabase>,
}

impl Deployment {
    pub fn embedded() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            database: None,
            redis_prefix: String::new(),
            clickhouse: None,
        }
    }

    pub fn both() -> [Self; 2] {
        let database = tokio::runtime::Runtime::new().unwrap().block_on(Database::create());
        let redis_prefix = format!("t{}:", random_letters());
        [Self::embedded(), Self { database: Some(database), redis_prefix, ..Self::embedded() }]
    }

    /// Returns both, with events in the database of each, and in ClickHouse with each.
    pub fn with_every_event_store() -> Vec<Self> {
        let with_clickhouse = Self::both().map(|deployment| Self {
            clickhouse: Some(ClickHouseDatabase::uninitialized()),
            ..deployment
        });
        Self::both().into_iter().chain(with_clickhouse).collect()
    }

    /// Returns a command whose settings name this deployment.
    pub fn command(&self) -> Command {
        let mut command = embedded(self.directory.path());
        command.env("KEYWARD_MASTER_KEY", "a5".repeat(32));
        if let Some(database) = &self.database {
            command.env_remove("KEYWARD_DATA_DIR").env("KEYWARD_DATABASE_URL", &database.url);
            command
                .env("KEYWARD_REDIS_URL", redis_url())
                .env("KEYWARD_REDIS_PREFIX", &self.redis_prefix);
        }
        if let Some(clickhouse) = &self.clickhouse {
            command.env("KEYWARD_CLICKHOUSE_URL", clickhouse.url.as_str());
        }
        // On a busy machine, too, Redis decides and not the outage policy.
        command.env("KEYWARD_REDIS_TIMEOUT_MS", "2000");
        command
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its JSON.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        parse_json(&self.run(&[arguments, &["--json"]].concat()))
    }

    /// Runs a command that must succeed, and returns its text.
    #[track_caller]
    pub fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a server with [`ROOT_KEY`].
    pub fn serve(&self) -> Server {
        let mut command = self.command();
        command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
        Server::start(command)
    }

    /// Runs a command that asks this server.
    pub fn ask(&self, server: &Server, arguments: &[&str]) -> Output {
        let mut command = self.command();
        command.env("KEYWARD_LISTEN", server.address.to_string()).args(arguments).output().unwrap()
    }

    /// Creates an API and returns its ID.
    #[track_caller]
    pub fn create_api(&self) -> String {
        text_of(&self.json(&["api", "create", "--name", "payments"]), "apiId")
    }

    /// Creates a key in an API. Returns its ID and the key.
    #[track_caller]
    pub fn create_key(&self, api: &str, options: &[&str]) -> (String, String) {
        let created = self.json(&[&["key", "create", "--api", api], options].concat());
        (text_of(&created, "keyId"), text_of(&created, "key"))
    }
}

/// Returns a text of a JSON object.
#[track_caller]
pub fn text_of(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("{name} is no text in {value}")).to_owned()
}

/// Repeats a call for two seconds until its result is as expected: servers see changes by commands within one.
#[track_caller]
pub fn wait_for<T: PartialEq + std::fmt::Debug>(expected: &T, mut call: impl FnMut() -> T) {
    let waited = Stopwatch::new();
    loop {
        let found = call();
        if found == *expected {
            return;
        }
        assert!(waited.elapsed_ms() < 2_000, "{found:?} is not {expected:?}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
