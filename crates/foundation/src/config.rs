//! Defines every flag and environment variable, its allowed values and its default.
//!
//! A flag takes precedence over its variable. An invalid value stops the start with the name of the variable, the
//! problem and the allowed values; nothing is guessed.

mod events;
mod keys;
mod oidc;
mod ratelimit_headers;
mod read_replica;
mod redis;
mod regions;
mod security;
mod sentinel;
mod server_tls;
mod setting;
mod values;
mod variables;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use url::Url;

use crate::model::{Networks, OutagePolicy, RetentionSettings};
use crate::secret::Plaintext;
use crate::tls::server::CertificateFiles;
use crate::vault::MasterKeys;
use events::EventsConfig;
pub use events::{ANALYTICS_URL, BYTES as EVENTS_BYTES, RESERVE as EVENTS_RESERVE};
use oidc::OidcConfig;
pub use oidc::{OIDC_ONLY, OidcSettings};
use ratelimit_headers::RATELIMIT_HEADERS;
pub use ratelimit_headers::RatelimitHeaders;
use read_replica::ReadReplicaConfig;
use redis::RedisConfig;
pub use redis::{ClientCertificate, RedisTls};
use regions::RegionsConfig;
pub use regions::{REGION_CHARS_MAX, RegionSettings};
use security::SecurityConfig;
pub use security::{OPEN_VERIFICATION, OpenVerification, Security, SecurityContact};
pub use sentinel::{Credentials, SentinelUrl};
use server_tls::ServerTlsConfig;
use setting::{ChoiceSetting, NumberSetting};
pub use values::local_url;
use values::{load_secret, parse_log_filter, url_or_local, validate_postgres_url};

/// The heading of the settings in the help.
pub const HELP_HEADING: &str = "Settings";

/// The settings as written on the command line or in the environment. [`Config::validate`] validates them.
/// A setting that is `None` has its default.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = HELP_HEADING)]
pub struct Config {
    /// Address and port to serve on
    #[arg(long, env = "KEYWARD_LISTEN", global = true, default_value = LISTEN)]
    listen: Option<String>,
    /// Postgres URL, such as `postgres://user:password@host/database`; requires Redis
    #[arg(long, env = "KEYWARD_DATABASE_URL", global = true, hide_env_values = true)]
    database_url: Option<String>,
    /// File that contains the database URL
    #[arg(long, env = "KEYWARD_DATABASE_URL_FILE", global = true)]
    database_url_file: Option<PathBuf>,
    /// Data directory of an embedded server
    #[arg(long, env = "KEYWARD_DATA_DIR", global = true, default_value = DATA_DIR)]
    data_dir: Option<PathBuf>,
    /// Root key of the default workspace with all permissions, created at the start if absent
    #[arg(long, env = "KEYWARD_ROOT_KEY", global = true, hide_env_values = true)]
    root_key: Option<String>,
    /// File that contains the root key
    #[arg(long, env = "KEYWARD_ROOT_KEY_FILE", global = true)]
    root_key_file: Option<PathBuf>,
    /// 32 bytes in base64 or hex that seal recoverable keys [default, embedded: created at the first start]
    #[arg(long, env = "KEYWARD_MASTER_KEY", global = true, hide_env_values = true)]
    master_key: Option<String>,
    /// File that contains the master key
    #[arg(long, env = "KEYWARD_MASTER_KEY_FILE", global = true)]
    master_key_file: Option<PathBuf>,
    /// Previous master key, until `keyward vault rotate` has run
    #[arg(long, env = "KEYWARD_MASTER_KEY_PREVIOUS", global = true, hide_env_values = true)]
    master_key_previous: Option<String>,
    /// File that contains the previous master key
    #[arg(long, env = "KEYWARD_MASTER_KEY_PREVIOUS_FILE", global = true)]
    master_key_previous_file: Option<PathBuf>,
    /// Networks of trusted proxies, whose X-Forwarded-For is used, such as `10.0.0.0/8,fd00::/8` [default: none]
    #[arg(long, env = "KEYWARD_TRUSTED_PROXIES", global = true)]
    trusted_proxies: Option<String>,
    /// Seconds to continue serving after SIGTERM, so that the load balancer notices
    #[arg(long, env = DRAIN_SECONDS.name, global = true, default_value = DRAIN_SECONDS)]
    drain_seconds: Option<String>,
    /// Public URL of this server, for the links that it shows [default: the listening address]
    #[arg(long, env = "KEYWARD_PUBLIC_URL", global = true)]
    public_url: Option<String>,
    /// Base URL of error pages [default: this server]
    #[arg(long, env = "KEYWARD_DOCS_URL", global = true)]
    docs_url: Option<String>,
    /// Log level: error, warn, info, debug, trace, or a filter such as `keyward=debug`
    #[arg(long, env = "KEYWARD_LOG", global = true, default_value = LOG)]
    log: Option<String>,
    /// Log format
    #[arg(
        long,
        env = LOG_FORMAT.name,
        global = true,
        default_value = LOG_FORMAT.default,
        value_parser = LOG_FORMAT
    )]
    log_format: Option<String>,
    /// Maximum number of connections to Postgres
    #[arg(
        long,
        env = DATABASE_CONNECTIONS.name,
        global = true,
        default_value = DATABASE_CONNECTIONS
    )]
    database_connections: Option<String>,
    /// Seconds for which cached keys verify while the database is unreachable
    #[arg(
        long,
        env = DATABASE_GRACE_SECONDS.name,
        global = true,
        default_value = DATABASE_GRACE_SECONDS
    )]
    database_grace_seconds: Option<String>,
    /// Outage policy for key rate limits
    #[arg(
        long,
        env = KEYS_ON_OUTAGE.name,
        global = true,
        default_value = KEYS_ON_OUTAGE.default,
        value_parser = KEYS_ON_OUTAGE
    )]
    keys_on_outage: Option<String>,
    /// Seconds without a spend before leased credits return to the account
    #[arg(long, env = LEASE_IDLE_SECONDS.name, global = true, default_value = LEASE_IDLE_SECONDS)]
    lease_idle_seconds: Option<String>,
    /// Approximate maximum size of cached keys and of what belongs to them, in bytes
    #[arg(long, env = CACHE_BYTES.name, global = true, default_value = CACHE_BYTES)]
    cache_bytes: Option<String>,
    /// Ignored
    #[arg(long, env = "KEYWARD_CACHED_KEYS", global = true, hide = true)]
    cached_keys: Option<String>,
    /// Headers with the rate limits of v2 `keys.verifyKey` and `ratelimit.limit`
    #[arg(
        long,
        env = RATELIMIT_HEADERS.name,
        global = true,
        default_value = RATELIMIT_HEADERS.default,
        value_parser = RATELIMIT_HEADERS
    )]
    ratelimit_headers: Option<String>,
    #[command(flatten)]
    redis: RedisConfig,
    #[command(flatten)]
    regions: RegionsConfig,
    #[command(flatten)]
    read_replica: ReadReplicaConfig,
    #[command(flatten)]
    security: SecurityConfig,
    #[command(flatten)]
    server_tls: ServerTlsConfig,
    #[command(flatten)]
    events: EventsConfig,
    #[command(flatten)]
    oidc: OidcConfig,
}

/// Where data and counters are stored.
#[derive(Clone, PartialEq, Eq)]
pub enum Deployment {
    /// An embedded server: a SQLite file, and counters in memory.
    Embedded { data_dir: PathBuf },
    /// One of several replicas: Postgres and Redis.
    Replica { database_url: String, redis_url: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// The validated settings.
#[derive(Clone)]
pub struct Settings {
    pub listen: SocketAddr,
    pub deployment: Deployment,
    pub root_key: Option<Plaintext>,
    /// The configured master keys. An embedded server may have them in a file instead.
    pub master_keys: Option<MasterKeys>,
    /// Absent: X-Forwarded-For is ignored.
    pub trusted_proxies: Option<Networks>,
    pub drain_seconds: u64,
    /// Without a trailing slash, like `docs_url`.
    pub public_url: String,
    pub docs_url: String,
    pub log: String,
    pub log_format: LogFormat,
    pub redis_tls: RedisTls,
    pub redis_timeout_ms: u64,
    pub redis_prefix: String,
    pub database_connections_max: u32,
    pub database_grace_seconds: u64,
    pub cache_bytes_max: u64,
    /// Whether the maximum number of cached keys is set, which `cache_bytes_max` has replaced.
    pub has_cached_keys: bool,
    pub keys_outage_policy: OutagePolicy,
    pub lease_idle_seconds: u64,
    pub ratelimit_headers: RatelimitHeaders,
    /// The label of this replica in analytics. Empty: none.
    pub region: String,
    /// The regions that share limits and credits. Absent: there is one.
    pub regions: Option<RegionSettings>,
    pub events_waiting_max: usize,
    pub events_waiting_bytes_max: usize,
    pub retention: RetentionSettings,
    /// Approximate maximum size of single events in the database. Absent: unlimited.
    pub events_max_bytes: Option<u64>,
    /// Free space of an embedded server's disk below which no events are written.
    pub events_reserve_bytes: u64,
    /// The ClickHouse that receives events, over http or https. Absent: events stay in the database.
    pub clickhouse_url: Option<Url>,
    /// The database with a role that only reads events. Absent: `database_url` is used for analytics queries too.
    pub analytics_url: Option<String>,
    /// The read replica from which uncached rows are read. Absent: all are read from the primary.
    pub database_read_url: Option<String>,
    pub security: Security,
    /// The certificate of the listeners. Absent: they do not use TLS.
    pub server_tls: Option<CertificateFiles>,
    /// Absent: single sign-on is disabled.
    pub oidc: Option<OidcSettings>,
}

impl Settings {
    /// Returns the settings with the address that the server listens on, which differs if port 0 was configured.
    pub fn with_listen_address(mut self, address: SocketAddr) -> Self {
        let has_tls = self.server_tls.is_some();
        for url in [&mut self.docs_url, &mut self.public_url] {
            if *url == local_url(self.listen, has_tls) {
                *url = local_url(address, has_tls);
            }
        }
        self.listen = address;
        self
    }
}

const LISTEN: &str = "127.0.0.1:3000";
const DATA_DIR: &str = "./keyward-data";
const DRAIN_SECONDS: NumberSetting =
    NumberSetting { name: "KEYWARD_DRAIN_SECONDS", default: 5, min: 0, max: 3600 };
const LOG: &str = "info";
const LOG_FORMAT: ChoiceSetting<LogFormat> = ChoiceSetting {
    name: "KEYWARD_LOG_FORMAT",
    default: "text",
    choices: &[("text", LogFormat::Text), ("json", LogFormat::Json)],
};
const DATABASE_CONNECTIONS: NumberSetting =
    NumberSetting { name: "KEYWARD_DATABASE_CONNECTIONS", default: 16, min: 2, max: 1000 };
const DATABASE_GRACE_SECONDS: NumberSetting =
    NumberSetting { name: "KEYWARD_DATABASE_GRACE_SECONDS", default: 900, min: 0, max: 86_400 };
const KEYS_ON_OUTAGE: ChoiceSetting<OutagePolicy> = ChoiceSetting {
    name: "KEYWARD_KEYS_ON_OUTAGE",
    default: OutagePolicy::Local.as_str(),
    choices: &[
        (OutagePolicy::Local.as_str(), OutagePolicy::Local),
        (OutagePolicy::Open.as_str(), OutagePolicy::Open),
        (OutagePolicy::Closed.as_str(), OutagePolicy::Closed),
    ],
};
const LEASE_IDLE_SECONDS: NumberSetting =
    NumberSetting { name: "KEYWARD_LEASE_IDLE_SECONDS", default: 60, min: 1, max: 86_400 };
/// The default is room for some 300,000 keys.
const CACHE_BYTES: NumberSetting =
    NumberSetting { name: "KEYWARD_CACHE_BYTES", default: 512 << 20, min: 1 << 20, max: 1 << 40 };

impl Config {
    /// Validates the settings before anything is opened. The error is one sentence.
    pub fn validate(&self) -> Result<Settings, String> {
        let (listen, deployment) = (self.listen()?, self.deployment()?);
        let redis_url = match &deployment {
            Deployment::Replica { redis_url, .. } => Some(redis_url.as_str()),
            Deployment::Embedded { .. } => None,
        };
        let regions = self.regions.validate(redis_url)?;
        let other_urls = regions.iter().flat_map(|regions| &regions.others).map(|(_, url)| url);
        let redis_tls = self.redis.tls(redis_url, other_urls.map(String::as_str))?;
        let has_database = matches!(deployment, Deployment::Replica { .. });
        let events = self.events.validate(has_database)?;
        let local_url = || local_url(listen, self.has_tls());
        Ok(Settings {
            deployment,
            root_key: self.root_key()?,
            master_keys: self.master_keys()?,
            trusted_proxies: self.trusted_proxies()?,
            drain_seconds: DRAIN_SECONDS.parse(self.drain_seconds.as_deref())?,
            public_url: url_or_local("KEYWARD_PUBLIC_URL", self.public_url.as_ref(), local_url)?,
            docs_url: url_or_local("KEYWARD_DOCS_URL", self.docs_url.as_ref(), local_url)?,
            log: parse_log_filter(self.log.as_deref().unwrap_or(LOG))?,
            log_format: LOG_FORMAT.parse(self.log_format.as_deref())?,
            redis_tls,
            redis_timeout_ms: self.redis.timeout_ms()?,
            redis_prefix: self.redis.prefix()?,
            database_connections_max: DATABASE_CONNECTIONS
                .parse_u32(self.database_connections.as_deref())?,
            database_grace_seconds: DATABASE_GRACE_SECONDS
                .parse(self.database_grace_seconds.as_deref())?,
            cache_bytes_max: CACHE_BYTES.parse(self.cache_bytes.as_deref())?,
            has_cached_keys: self.cached_keys.is_some(),
            keys_outage_policy: KEYS_ON_OUTAGE.parse(self.keys_on_outage.as_deref())?,
            lease_idle_seconds: LEASE_IDLE_SECONDS.parse(self.lease_idle_seconds.as_deref())?,
            ratelimit_headers: RATELIMIT_HEADERS.parse(self.ratelimit_headers.as_deref())?,
            region: self.regions.label()?,
            regions,
            events_waiting_max: events.waiting_max,
            events_waiting_bytes_max: events.waiting_bytes_max,
            retention: events.retention,
            events_max_bytes: events.max_bytes,
            events_reserve_bytes: events.reserve_bytes,
            clickhouse_url: events.clickhouse_url,
            analytics_url: events.analytics_url,
            database_read_url: self.read_replica.validate(has_database)?,
            security: self.security.validate()?,
            server_tls: self.server_tls.validate()?,
            oidc: self.oidc.validate()?,
            listen,
        })
    }

    /// Returns only the listening address, for commands that call the server.
    pub fn listen(&self) -> Result<SocketAddr, String> {
        let text = self.listen.as_deref().unwrap_or(LISTEN);
        text.parse().map_err(|_| {
            format!("KEYWARD_LISTEN is {text:?}: it must be an address and a port such as {LISTEN}")
        })
    }

    /// Returns the address at which health is checked: that for metrics if it is set, because client connections cannot
    /// exhaust its connections.
    pub fn health_listen(&self) -> Result<SocketAddr, String> {
        self.security.metrics_listen()?.map_or_else(|| self.listen(), Ok)
    }

    /// Returns whether the server uses TLS, for commands that call the server.
    pub fn has_tls(&self) -> bool {
        self.server_tls.is_set()
    }

    fn deployment(&self) -> Result<Deployment, String> {
        let database = load_secret(
            "KEYWARD_DATABASE_URL",
            self.database_url.as_ref(),
            self.database_url_file.as_deref(),
        )?;
        match (database, self.redis.url()?) {
            (None, None) => {
                let data_dir = self.data_dir.clone().unwrap_or_else(|| DATA_DIR.into());
                Ok(Deployment::Embedded { data_dir })
            }
            (Some(_), None) => Err("KEYWARD_DATABASE_URL is set and KEYWARD_REDIS_URL is not: \
                set both for a replica, or neither for an embedded server"
                .into()),
            (None, Some(_)) => Err("KEYWARD_REDIS_URL is set and KEYWARD_DATABASE_URL is not: \
                set both for a replica, or neither for an embedded server"
                .into()),
            (Some(database_url), Some(redis_url)) => {
                validate_postgres_url("KEYWARD_DATABASE_URL", &database_url)?;
                Ok(Deployment::Replica { database_url, redis_url })
            }
        }
    }

    fn trusted_proxies(&self) -> Result<Option<Networks>, String> {
        let networks = Networks::parse(self.trusted_proxies.as_deref().unwrap_or_default());
        networks.map(Networks::new).map_err(|error| format!("KEYWARD_TRUSTED_PROXIES: {error}"))
    }
}
