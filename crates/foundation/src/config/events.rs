//! Settings of analytics events: retention, size and the database for analytics queries.

use std::path::PathBuf;

use clap::Args;
use url::Url;

use super::setting::{NumberSetting, RetentionSetting};
use super::values::{load_secret, validate_postgres_url, validate_url_scheme};
use crate::model::{Retention, RetentionSettings};

/// The settings as written on the command line or in the environment.
// The argument IDs are explicit, because a command may have an argument `name` too.
#[derive(Args, Clone, Default)]
pub struct EventsConfig {
    /// Retention of verifications and of their rollups, in days
    #[arg(long, env = VERIFICATIONS_KEPT.name, global = true, default_value = VERIFICATIONS_KEPT)]
    verifications_kept: Option<String>,
    /// Retention of checks of the standalone limiter and of their rollups, in days
    #[arg(long, env = RATELIMITS_KEPT.name, global = true, default_value = RATELIMITS_KEPT)]
    ratelimits_kept: Option<String>,
    /// Maximum number of events that wait to be written; more are dropped
    #[arg(long, env = EVENTS_WAITING.name, global = true, default_value = EVENTS_WAITING)]
    events_waiting: Option<String>,
    /// Maximum size of the events that wait to be written, in bytes; more are dropped
    #[arg(
        long,
        env = EVENTS_WAITING_BYTES.name,
        global = true,
        default_value = EVENTS_WAITING_BYTES
    )]
    events_waiting_bytes: Option<String>,
    /// Approximate maximum size of single events in the database, in bytes; the oldest are deleted, their rollups stay;
    /// 0: unlimited
    #[arg(long, env = BYTES, global = true, default_value = EVENTS_BYTES)]
    events_bytes: Option<String>,
    /// Free disk space, in bytes, below which an embedded server writes no events; 0: none
    #[arg(long, env = RESERVE, global = true, default_value = EVENTS_RESERVE_BYTES)]
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

const VERIFICATIONS_KEPT: RetentionSetting = RetentionSetting {
    name: "KEYWARD_VERIFICATIONS_KEPT",
    default: Retention {
        raw_days: 90,
        minute_days: 90,
        hour_days: 90,
        day_days: 365,
        month_days: 1095,
    },
};
const RATELIMITS_KEPT: RetentionSetting = RetentionSetting {
    name: "KEYWARD_RATELIMITS_KEPT",
    default: Retention {
        raw_days: 30,
        minute_days: 7,
        hour_days: 30,
        day_days: 100,
        month_days: 1095,
    },
};
const EVENTS_WAITING: NumberSetting =
    NumberSetting { name: "KEYWARD_EVENTS_WAITING", default: 100_000, min: 100, max: 10_000_000 };
const EVENTS_WAITING_BYTES: NumberSetting = NumberSetting {
    name: "KEYWARD_EVENTS_WAITING_BYTES",
    default: 64 << 20,
    min: 1 << 20,
    max: 1 << 40,
};
/// The default is room for several million events. Values from 1 up to [`EVENTS_BYTES_MIN`] are invalid too.
const EVENTS_BYTES: NumberSetting =
    NumberSetting { name: BYTES, default: 4 << 30, min: 0, max: 1 << 50 };
/// A lower maximum, other than 0, would delete events as fast as they are written.
const EVENTS_BYTES_MIN: u64 = 1 << 20;
const EVENTS_RESERVE_BYTES: NumberSetting =
    NumberSetting { name: RESERVE, default: 512 << 20, min: 0, max: 1 << 50 };

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
        Ok(EventSettings {
            retention: RetentionSettings {
                verifications: VERIFICATIONS_KEPT.parse(self.verifications_kept.as_deref())?,
                ratelimits: RATELIMITS_KEPT.parse(self.ratelimits_kept.as_deref())?,
            },
            waiting_max: EVENTS_WAITING.parse_usize(self.events_waiting.as_deref())?,
            waiting_bytes_max: EVENTS_WAITING_BYTES
                .parse_usize(self.events_waiting_bytes.as_deref())?,
            max_bytes: self.max_bytes()?,
            reserve_bytes: EVENTS_RESERVE_BYTES.parse(self.events_reserve_bytes.as_deref())?,
            clickhouse_url: self.clickhouse_url()?,
            analytics_url: self.analytics_url(has_database)?,
        })
    }

    fn max_bytes(&self) -> Result<Option<u64>, String> {
        let bytes = EVENTS_BYTES.parse(self.events_bytes.as_deref())?;
        match bytes {
            0 => Ok(None),
            EVENTS_BYTES_MIN.. => Ok(Some(bytes)),
            _ => Err(format!("{BYTES} is {bytes}: it must be 0 or at least {EVENTS_BYTES_MIN}")),
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
                validate_postgres_url(ANALYTICS_URL, text)?;
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
