//! Creates the tables in ClickHouse.
//!
//! `verifications` and `ratelimits` have a row for each event, `verification_hours` and `ratelimit_hours` the rollups
//! by hour of the days that are over. Each row contains the delivery that wrote it; which deliveries count is stored
//! in Keyward's own database. Times are Unix milliseconds.

use super::source::HISTOGRAM_COLUMNS;
use super::{ClickHouse, ClickHouseError};

/// The error code of ClickHouse for a database that does not exist.
const UNKNOWN_DATABASE_CODE: u32 = 81;

/// The error code of ClickHouse for a column that exists.
const COLUMN_EXISTS_CODE: u32 = 44;

/// All tables. Event tables have a partition for each day, tables of hours one for every thirty days.
const TABLES: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS verifications (
        time Int64,
        workspace_id String,
        api_id String,
        key_id String,
        identity_id String,
        external_id String,
        outcome String,
        tags Array(String),
        request_id String,
        spent_credits Int64,
        latency_us Int64,
        region String,
        reason String,
        delivery Int64
    ) ENGINE = MergeTree
    PARTITION BY intDiv(time, 86400000)
    ORDER BY (workspace_id, api_id, time)",
    "CREATE TABLE IF NOT EXISTS ratelimits (
        time Int64,
        workspace_id String,
        namespace_id String,
        identifier String,
        passed UInt8,
        request_id String,
        latency_us Int64,
        override_id String,
        max Int64,
        remaining Int64,
        reset_at Int64,
        tokens Int64,
        delivery Int64
    ) ENGINE = MergeTree
    PARTITION BY intDiv(time, 86400000)
    ORDER BY (workspace_id, namespace_id, time)",
    "CREATE TABLE IF NOT EXISTS verification_hours (
        time Int64,
        workspace_id String,
        api_id String,
        key_id String,
        identity_id String,
        external_id String,
        outcome String,
        tags Array(String),
        region String,
        count Int64,
        spent_credits Int64,
        latency_us Int64,
        latency_le_100us Int64,
        latency_le_500us Int64,
        latency_le_1ms Int64,
        latency_le_5ms Int64,
        latency_le_25ms Int64,
        latency_le_100ms Int64,
        delivery Int64
    ) ENGINE = MergeTree
    PARTITION BY intDiv(time, 2592000000)
    ORDER BY (workspace_id, api_id, time)",
    "CREATE TABLE IF NOT EXISTS ratelimit_hours (
        time Int64,
        workspace_id String,
        namespace_id String,
        identifier String,
        passed UInt8,
        count Int64,
        tokens Int64,
        latency_us Int64,
        latency_le_100us Int64,
        latency_le_500us Int64,
        latency_le_1ms Int64,
        latency_le_5ms Int64,
        latency_le_25ms Int64,
        latency_le_100ms Int64,
        delivery Int64
    ) ENGINE = MergeTree
    PARTITION BY intDiv(time, 2592000000)
    ORDER BY (workspace_id, namespace_id, time)",
];

impl ClickHouse {
    /// Creates the tables that do not exist, and the database if necessary.
    pub async fn create_tables(&self) -> Result<(), ClickHouseError> {
        for table in TABLES {
            match self.execute(table).await {
                Err(ClickHouseError::Rejected(UNKNOWN_DATABASE_CODE, _)) => {
                    self.create_database().await?;
                    self.execute(table).await?;
                }
                other => other?,
            }
        }
        for table in ["verification_hours", "ratelimit_hours"] {
            for (column, kind) in HISTOGRAM_COLUMNS.into_iter().zip(["UInt8", "Int64"]) {
                self.add_column(table, column, &format!("Array({kind})")).await?;
            }
        }
        self.add_column("verification_hours", "region", "String").await
    }

    /// Adds a column to a table that an older version has created, unless another replica does.
    async fn add_column(
        &self,
        table: &str,
        column: &str,
        kind: &str,
    ) -> Result<(), ClickHouseError> {
        let sql = "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = $1 AND name = $2";
        let found: Vec<(String,)> = self.fetch_rows(sql, &[table, column]).await?;
        if !found.is_empty() {
            return Ok(());
        }
        match self.execute(&format!("ALTER TABLE {table} ADD COLUMN {column} {kind}")).await {
            Err(ClickHouseError::Rejected(COLUMN_EXISTS_CODE, _)) => Ok(()),
            other => other,
        }
    }

    async fn create_database(&self) -> Result<(), ClickHouseError> {
        let name = self.database.replace('\\', "\\\\").replace('`', "\\`");
        let default_database = Self { database: "default".into(), ..self.clone() };
        default_database.execute(&format!("CREATE DATABASE IF NOT EXISTS `{name}`")).await
    }
}
