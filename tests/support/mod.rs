//! Test support: a complete server for each test, with its own database and Redis prefix, and a clock that the test
//! controls.

pub mod assertion;
pub mod certificates;
pub mod clickhouse;
mod data_directory;
pub mod database;
mod examples;
pub mod faulty_proxy;
pub mod json;
pub mod memory;
pub mod older_schema;
pub mod process;
mod reply;
pub mod scenario;
pub mod seed;
mod stacks;
pub mod version;
pub mod work_meter;

use std::sync::Arc;

use analytics::{clickhouse_delivery, writer};
use axum::body::Body;
use axum::http::request::Builder;
use axum::http::{Method, Request};
use clickhouse::ClickHouseDatabase;
use database::Database;
use domain::app::App;
use domain::root_keys;
use faulty_proxy::FaultyProxy;
use foundation::clock::{Clock, Monotonic, Timestamp};
use foundation::config::{Config, Deployment, Settings};
use foundation::secret::Plaintext;
use foundation::vault::{MasterKey, MasterKeys};
use http_body_util::BodyExt as _;
use keyward::background;
use keyward::http::HttpService;
use serde_json::Value;
use store::Store;
use store::events::EventDatabase;
use tokio::task::JoinSet;

pub use self::reply::Reply;

/// Noon of a day that is neither the first nor the last of a month.
pub const NOON: Timestamp = Timestamp(1_773_144_000_000);

/// The servers behind a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// SQLite and counters in the process.
    Embedded,
    /// Postgres and Redis.
    Replica,
}

/// A running server, called in process.
pub struct Keyward {
    pub app: Arc<App>,
    pub clock: Clock,
    pub stack: Stack,
    /// A root key of the default workspace with every permission.
    pub root_key: String,
    http: HttpService,
    /// The background tasks that keep the caches up to date; they end with the server.
    _tasks: JoinSet<()>,
    data_location: Arc<DataLocation>,
    /// The ClickHouse database of the events, if they are not stored in the database.
    pub clickhouse: Option<Arc<ClickHouseDatabase>>,
}

/// Where a server stores its data; shared by its replicas.
pub enum DataLocation {
    Directory(tempfile::TempDir),
    Servers { database: Database, redis_url: String, prefix: String },
}

impl Keyward {
    pub async fn start(stack: Stack) -> Self {
        Self::start_with(stack, |_| {}).await
    }

    /// Starts a server whose events go to ClickHouse.
    pub async fn start_with_clickhouse(stack: Stack) -> Self {
        Self::start_with_clickhouse_and(stack, |_| {}).await
    }

    /// Like [`Self::start_with_clickhouse`], with other settings.
    pub async fn start_with_clickhouse_and(
        stack: Stack,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let warehouse = Arc::new(ClickHouseDatabase::uninitialized());
        let url = warehouse.url.clone();
        let change = |settings: &mut Settings| {
            settings.clickhouse_url = Some(url);
            change(settings);
        };
        let mut server = Self::start_with(stack, change).await;
        server.clickhouse = Some(warehouse);
        // A server does this when it starts.
        server.write_events().await;
        server
    }

    /// Like [`Self::start_with_clickhouse`], with a faulty proxy in between.
    pub async fn start_with_faulty_clickhouse(
        stack: Stack,
    ) -> (Self, FaultyProxy, ClickHouseDatabase) {
        let warehouse = ClickHouseDatabase::create().await;
        let addresses = warehouse.url.socket_addrs(|| None).expect("an address");
        let wire = FaultyProxy::start(addresses[0]).await;
        let mut url = warehouse.url.clone();
        url.set_port(Some(wire.address.port())).expect("it may have a port");
        url.set_ip_host(wire.address.ip()).expect("it may have a host");
        let kw = Self::start_with(stack, |settings| settings.clickhouse_url = Some(url)).await;
        kw.write_events().await;
        (kw, wire, warehouse)
    }

    /// Starts a server with settings that differ from those of tests.
    pub async fn start_with(stack: Stack, change: impl FnOnce(&mut Settings)) -> Self {
        let data_location = match stack {
            Stack::Embedded => DataLocation::Directory(data_directory::create().await),
            Stack::Replica => DataLocation::Servers {
                database: Database::create().await,
                redis_url: redis_url(),
                prefix: format!("t{}:", random_letters()),
            },
        };
        Self::start_on(stack, Arc::new(data_location), Clock::fixed_at(NOON), change).await
    }

    /// Starts a server with the time of the machine.
    pub async fn start_in_real_time(stack: Stack) -> Self {
        let fixed = Self::start(stack).await;
        let location = fixed.data_location.clone();
        drop(fixed);
        Self::start_on(stack, location, Clock::System, |_| {}).await
    }

    /// Starts a second server with the same data and clock.
    pub async fn replica(&self) -> Self {
        let url = self.app.context.settings.clickhouse_url.clone();
        let change = |settings: &mut Settings| settings.clickhouse_url = url;
        let mut replica =
            Self::start_on(self.stack, self.data_location.clone(), self.clock.clone(), change)
                .await;
        replica.clickhouse.clone_from(&self.clickhouse);
        replica
    }

    async fn start_on(
        stack: Stack,
        data_location: Arc<DataLocation>,
        clock: Clock,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let mut settings = test_settings(&data_location);
        change(&mut settings);
        let store = domain::context::Context::open_store(&settings).await.expect("the store opens");
        store.migrate().await.expect("the schema is migrated");
        let root_key = format!("root_{}", random_letters());
        let (app, announcements) = App::new(settings, clock.clone()).expect("the app is created");
        let app = Arc::new(app);
        let secret = Plaintext::from(root_key.clone());
        root_keys::bootstrap(&app.context, &store, Some(&secret))
            .await
            .expect("the root key is created");
        app.context.store.set(store);
        app.context.freshness.record_database_reply(Monotonic::now());
        let tasks = background::start(&app, announcements);
        let paths = HttpService::new(app.clone());
        Self {
            app,
            clock,
            stack,
            root_key,
            http: paths,
            _tasks: tasks,
            data_location,
            clickhouse: None,
        }
    }

    pub fn store(&self) -> &Store {
        self.app.context.store.store().expect("the store is open")
    }

    /// Waits until so many statements of a replica wait for rows that other transactions hold.
    pub async fn wait_until_blocked(&self, statements: i64) {
        let Store::Postgres { pool, .. } = self.store() else { return };
        let sql = "
            SELECT COUNT(*)
            FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let count = async || -> i64 {
            sqlx::query_scalar(sql).fetch_one(&pool.get()).await.expect("the activity")
        };
        while count().await < statements {}
    }

    /// Calls an operation of version 2 with the root key that has every permission.
    pub async fn v2(&self, operation: &str, body: Value) -> Reply {
        self.v2_as(&self.root_key, operation, body).await
    }

    pub async fn v2_as(&self, root_key: &str, operation: &str, body: Value) -> Reply {
        let request = post(operation).header("authorization", format!("Bearer {root_key}"));
        self.send_json(request, &body).await
    }

    /// Calls an operation of version 1 that changes something, with the root key that has every permission.
    pub async fn v1(&self, operation: &str, body: Value) -> Reply {
        self.v1_as(&self.root_key, operation, body).await
    }

    pub async fn v1_as(&self, root_key: &str, operation: &str, body: Value) -> Reply {
        let request = Request::post(format!("/v1/{operation}"))
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {root_key}"));
        self.send_json(request, &body).await
    }

    /// Calls an operation of version 1 that only reads; `query` is sent unchanged.
    pub async fn v1_get(&self, operation: &str, query: &str) -> Reply {
        self.v1_get_as(&self.root_key, operation, query).await
    }

    pub async fn v1_get_as(&self, root_key: &str, operation: &str, query: &str) -> Reply {
        let request = Request::get(format!("/v1/{operation}?{query}"))
            .header("authorization", format!("Bearer {root_key}"))
            .body(Body::empty())
            .expect("a request");
        self.send(request).await
    }

    /// Verifies a key without a root key, as version 1 does; `fields` are added to the request.
    pub async fn verify_v1(&self, key: &str, mut fields: Value) -> Reply {
        fields["key"] = key.into();
        let request =
            Request::post("/v1/keys.verifyKey").header("content-type", "application/json");
        self.send_json(request, &fields).await
    }

    /// Introspects a token with the root key that has every permission; `fields` are added to the form.
    pub async fn introspect(&self, token: &str, fields: &[(&str, &str)]) -> Reply {
        self.introspect_as(&self.root_key, token, fields).await
    }

    pub async fn introspect_as(
        &self,
        root_key: &str,
        token: &str,
        fields: &[(&str, &str)],
    ) -> Reply {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("token", token).extend_pairs(fields);
        let request = post_form()
            .header("authorization", format!("Bearer {root_key}"))
            .body(Body::from(form.finish()))
            .expect("a request");
        self.send(request).await
    }

    /// Writes the buffered events, as a server does every second.
    pub async fn write_events(&self) {
        self.app.analytics.event_store().migrate().await.expect("the schema of events is migrated");
        writer::write_buffered(&self.app.analytics).await.expect("events are written");
        clickhouse_delivery::deliver(&self.app.analytics).await.expect("events are delivered");
    }

    /// Runs a query on the events. Returns one text per row.
    pub async fn query_events(&self, sql: &'static str) -> Vec<String> {
        let rows = match &self.app.analytics.event_store().database {
            EventDatabase::Postgres { read, .. } => {
                sqlx::query_scalar(sql).fetch_all(&read.get()).await
            }
            EventDatabase::Sqlite { read, .. } => sqlx::query_scalar(sql).fetch_all(read).await,
        };
        rows.expect("an answer")
    }

    /// Changes stored events.
    pub async fn change_events(&self, sql: &'static str) {
        let changed = match &self.app.analytics.event_store().database {
            EventDatabase::Postgres { write, .. } => {
                sqlx::query(sql).execute(&write.get()).await.map(drop)
            }
            EventDatabase::Sqlite { write, .. } => sqlx::query(sql).execute(write).await.map(drop),
        };
        changed.expect("a change");
    }

    /// Sends a request with this body.
    pub async fn send_json(&self, request: Builder, body: &Value) -> Reply {
        let mut reply =
            self.send(request.body(Body::from(body.to_string())).expect("a request")).await;
        reply.request = format!("{} {body}", reply.request);
        reply
    }

    /// Sends any request.
    pub async fn send(&self, request: Request<Body>) -> Reply {
        let target = format!("{} {}", request.method(), request.uri());
        let response = self.http.answer(request).await;
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Reply { request: target, status: head.status, headers: head.headers, body, text }
    }

    /// Verifies a key without further fields.
    pub async fn verify(&self, key: &str) -> Reply {
        self.v2("keys.verifyKey", serde_json::json!({ "key": key })).await
    }
}

/// Builds a POST of JSON to an operation of version 2, without headers for authentication and a body.
pub fn post(operation: &str) -> Builder {
    Request::builder()
        .method(Method::POST)
        .uri(format!("/v2/{operation}"))
        .header("content-type", "application/json")
}

/// Builds an introspection request, without headers for authentication and a body.
pub fn post_form() -> Builder {
    Request::post("/oauth2/introspect").header("content-type", "application/x-www-form-urlencoded")
}

fn test_settings(data_location: &DataLocation) -> Settings {
    let mut settings = Config::default().validate().expect("the defaults are valid");
    // The machine may be compiling at the same time; the limit has its own test.
    settings.redis_timeout_ms = 5_000;
    // A server of a test has few keys, and frees a slot of the cache for each that it may have.
    settings.cache_bytes_max = 1 << 20;
    settings.docs_url = "http://docs.test".into();
    let current = MasterKey::parse(&"5a".repeat(32)).expect("a master key");
    settings.master_keys = Some(MasterKeys { current_key: current, previous_key: None });
    match data_location {
        DataLocation::Directory(directory) => {
            settings.deployment = Deployment::Embedded { data_dir: directory.path().to_owned() };
        }
        DataLocation::Servers { database, redis_url, prefix } => {
            settings.deployment = Deployment::Replica {
                database_url: database.url.clone(),
                redis_url: redis_url.clone(),
            };
            settings.redis_prefix.clone_from(prefix);
            settings.database_connections_max = 4;
        }
    }
    settings
}

/// Returns the URL of the Redis of the test run.
pub fn redis_url() -> String {
    server_url("KEYWARD_TEST_REDIS_URL")
}

/// Returns the URL of a server of the test run. If it is missing, the test fails; it is never skipped.
pub fn server_url(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run ./test, which starts the servers"))
}

/// Returns twelve random letters.
pub fn random_letters() -> String {
    foundation::id::KeyId::random().as_str()[4..16].to_lowercase()
}
