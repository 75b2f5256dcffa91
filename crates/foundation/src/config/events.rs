//! Settings of analytics events: retention, size and the database for analytics queries.

use std::path::PathBuf;

use clap::Args;
use url::Url;

use super::values::{load_secret, parse_number, parse_retention, validate_url_scheme};
use crate::model::RetentionSettings;

/// The settings as written on the command line or in the environment.
// The argument IDs are explicit, because a command may have an argument `name` too.
#[derive(Args, Clone, Default)]
pub struct EventsConfig {
    /// Retention of verifications and of their rollups, in days [default: raw=90,minute=90,hour=90,day=365,month=1095]
    #[arg(long, env = "KEYWARD_VERIFICATIONS_KEPT", global = true)]
    verifications_kept: Option<String>,
    /// Retention of checks of the standalone limiter and of their rollups, in days [default:
    /// raw=30,minute=7,hour=30,day=100,month=1095]
    #[arg(long, env = "KEYWARD_RATELIMITS_KEPT", global = true)]
    ratelimits_kept: Option<String>,
    /// Maximum number of events that wait to be written; more are dropped [default: 100000]
    #[arg(long, env = "KEYWARD_EVENTS_WAITING", global = true)]
    events_waiting: Option<String>,
    /// Maximum size of the events that wait to be written, in bytes; more are dropped [default: 67108864]
    #[arg(long, env = "KEYWARD_EVENTS_WAITING_BYTES", global = true)]
    events_waiting_bytes: Option<String>,
    /// Approximate maximum size of single events in the database, in bytes; the oldest are deleted, their rollups stay;
    /// 0: unlimited [default: 4294967296]
    #[arg(long, env = BYTES, global = true)]
    events_bytes: Option<String>,
    /// Free disk space, in bytes, below which an embedded server writes no events; 0: none [default: 536870912]
    #[arg(long, env = RESERVE, global = true)]
    events_reserve_bytes: Option<String>,
    /// ClickHouse that stores events, such as `http://user:password@host:8123/keyward`; the same for all replicas
    /// [default: none, they stay in the database]
    #[arg(long, env = "KEYWARD_CLICKHOUSE_URL", global = true, hide_env_values = true)]
    clickhouse_url: Option<String>,
    /// File that contains the ClickHouse URL
    #[arg(long, env = "KEYWARD_CLICKHOUSE_URL_FILE", global = true)]
    clickhouse_url_file: Option<PathBuf>,
    /// Postgres URL of the same database with a role that only reads events, for analytics queries [default: that of
    /// `KEYWARD_DATABASE_URL`]
    #[arg(long, env = ANALYTICS_URL, global = true, hide_env_values = true)]
    database_analytics_url: Option<String>,
    /// File that contains the database URL for analytics queries
    #[arg(long, env = "KEYWARD_DATABASE_ANALYTICS_URL_FILE", global = true)]
    database_analytics_url_file: Option<PathBuf>,
}

pub const BYTES: &str = "KEYWARD_EVENTS_BYTES";
pub const RESERVE: &str = "KEYWARD_EVENTS_RESERVE_BYTES";
pub const ANALYTICS_URL: &str = "KEYWARD_DATABASE_ANALYTICS_URL";

/// Room for several million events.
const BYTES_DEFAULT: u64 = 4 << 30;
/// A lower maximum would delete events as fast as they are written.
const BYTES_MIN: u64 = 1 << 20;
const RESERVE_DEFAULT: u64 = 512 << 20;
const RESERVE_MAX: u64 = 1 << 50;

/// The validated settings of events.
#[derive(Debug, Clone)]
pub struct EventSettings {
    pub retention: RetentionSettings,
    /// The maximum number of events that wait to be written.
    pub waiting_max: usize,
    pub waiting_bytes_max: usize,
    /// The maximum size of single events in the database. Absent: unlimited.
    pub max_bytes: Option<u64>,
    /// The reserved space on the disk of an embedded server. 0: none.
    pub reserve_bytes: u64,
    /// The ClickHouse that receives events, over http or https. Absent: events stay in the database.
    pub clickhouse_url: Option<Url>,
    /// Absent: the database's own role is used for analytics queries.
    pub analytics_url: Option<String>,
}

impl EventsConfig {
    pub fn validate(&self, has_database: bool) -> Result<EventSettings, String> {
        let waiting = self.events_waiting.as_deref();
        let waiting_max =
            parse_number("KEYWARD_EVENTS_WAITING", waiting, 100_000, 100, 10_000_000)?;
        Ok(EventSettings {
            waiting_bytes_max: self.waiting_bytes_max()?,
            retention: parse_retention(
                self.verifications_kept.as_deref(),
                self.ratelimits_kept.as_deref(),
            )?,
            waiting_max: usize::try_from(waiting_max).unwrap_or(usize::MAX),
            max_bytes: self.max_bytes()?,
            reserve_bytes: parse_number(
                RESERVE,
                self.events_reserve_bytes.as_deref(),
                RESERVE_DEFAULT,
                0,
                RESERVE_MAX,
            )?,
            clickhouse_url: self.clickhouse_url()?,
            analytics_url: self.analytics_url(has_database)?,
        })
    }

    fn waiting_bytes_max(&self) -> Result<usize, String> {
        let text = self.events_waiting_bytes.as_deref();
        let max = parse_number("KEYWARD_EVENTS_WAITING_BYTES", text, 1 << 26, 1 << 20, 1 << 40)?;
        Ok(usize::try_from(max).unwrap_or(usize::MAX))
    }

    fn max_bytes(&self) -> Result<Option<u64>, String> {
        let bytes =
            parse_number(BYTES, self.events_bytes.as_deref(), BYTES_DEFAULT, 0, RESERVE_MAX)?;
        match bytes {
            0 => Ok(None),
            BYTES_MIN.. => Ok(Some(bytes)),
            _ => Err(format!("{BYTES} is {bytes}: it must be 0 or at least {BYTES_MIN}")),
        }
    }

    fn clickhouse_url(&self) -> Result<Option<Url>, String> {
        let name = "KEYWARD_CLICKHOUSE_URL";
        let given =
            load_secret(name, self.clickhouse_url.as_ref(), self.clickhouse_url_file.as_deref())?;
        let Some(text) = given else { return Ok(None) };
        validate_url_scheme(name, &text, &["http://", "https://"])?;
        Url::parse(&text).map(Some).map_err(|e| format!("{name} is not a valid URL: {e}"))
    }

    fn analytics_url(&self, has_database: bool) -> Result<Option<String>, String> {
        let (value, file) = (&self.database_analytics_url, &self.database_analytics_url_file);
        let given = load_secret(ANALYTICS_URL, value.as_ref(), file.as_deref())?;
        match &given {
            Some(text) => {
                validate_url_scheme(ANALYTICS_URL, text, &["postgres://", "postgresql://"])?;
            }
            None => return Ok(None),
        }
        if !has_database {
            return Err(format!(
                "{ANALYTICS_URL} is set and KEYWARD_DATABASE_URL is not: set both, or neither"
            ));
        }
        Ok(given)
    }
}
