//! Maintains the partitions of the event tables in Postgres: one for each span of days, created ahead and dropped
//! whole.

use foundation::clock::{DAY_MS, Timestamp};
use foundation::error::Result;
use foundation::model::RollupUnit;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use sqlx::{AssertSqlSafe, query, query_scalar};

use super::events::EventExpiry;
use super::postgres::{self, Pool};

/// How far ahead partitions are created: a server that cannot create any for a day still writes into the right ones.
const CREATE_AHEAD_MS: i64 = 2 * DAY_MS;
/// An arbitrary number that nothing else in the database locks.
pub const ADVISORY_LOCK_ID: i64 = 5_120_773_401;

/// A partitioned table, the number of days in each partition, and the time before which its rows are past their
/// retention.
struct PartitionedTable {
    table: String,
    span_days: i64,
    expired_before: Timestamp,
}

/// Creates the partitions of the days after `now`, and drops those whose rows are all past their retention. If several
/// replicas call it at once, one of them does it.
pub async fn maintain(pool: &Pool, expiry: &EventExpiry, now: Timestamp) -> Result<()> {
    let events = expiry.kind.table_name();
    let tables = [
        PartitionedTable {
            table: events.to_owned(),
            span_days: 1,
            expired_before: expiry.events_before(),
        },
        PartitionedTable {
            table: format!("{events}_per_minute"),
            span_days: 1,
            expired_before: expiry.rollups_before(RollupUnit::Minute),
        },
        PartitionedTable {
            table: format!("{events}_per_hour"),
            span_days: 30,
            expired_before: expiry.rollups_before(RollupUnit::Hour),
        },
    ];
    for table in tables {
        let mut tx = postgres::begin(pool).await?;
        let is_free: bool = query_scalar("SELECT pg_try_advisory_xact_lock($1)")
            .bind(ADVISORY_LOCK_ID)
            .fetch_one(&mut *tx)
            .await?;
        if !is_free {
            return Ok(());
        }
        // Reads and writes of the table take precedence: the next attempt is soon enough.
        query("SET LOCAL lock_timeout = '2s'").execute(&mut *tx).await?;
        let existing: Vec<String> = query_scalar(
            "SELECT CAST(c.relname AS TEXT) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = to_regclass($1)",
        )
        .bind(&table.table)
        .fetch_all(&mut *tx)
        .await?;
        for sql in table.plan_statements(&existing, now) {
            query(AssertSqlSafe(sql)).execute(&mut *tx).await?;
        }
        tx.commit().await?;
    }
    Ok(())
}

impl PartitionedTable {
    fn plan_statements(&self, existing: &[String], now: Timestamp) -> Vec<String> {
        let span_ms = self.span_days * DAY_MS;
        let first = now.0.div_euclid(span_ms) * span_ms;
        let ahead =
            (0..).map(|n| first + n * span_ms).take_while(|at| *at <= now.0 + CREATE_AHEAD_MS);
        let missing = ahead.filter(|start| !existing.contains(&self.partition_name(*start)));
        let created =
            missing.flat_map(|start| self.create_partition_statements(start, start + span_ms));
        let is_expired = |name: &&String| {
            let start = self.partition_start(name);
            start.is_some_and(|start| start + span_ms <= self.expired_before.0)
        };
        let expired = existing.iter().filter(is_expired).map(|name| format!("DROP TABLE {name}"));
        created.chain(expired).collect()
    }

    /// Returns the statements that create a partition, with the rows that were written before it existed.
    fn create_partition_statements(&self, start: i64, end: i64) -> [String; 4] {
        let (table, part) = (&self.table, self.partition_name(start));
        [
            format!("LOCK TABLE {table}_rest IN ACCESS EXCLUSIVE MODE"),
            format!("CREATE TABLE {part} (LIKE {table} INCLUDING ALL)"),
            format!(
                "WITH early AS (
                    DELETE FROM {table}_rest WHERE time >= {start} AND time < {end} RETURNING *
                )
                INSERT INTO {part} TABLE early"
            ),
            format!(
                "ALTER TABLE {table} ATTACH PARTITION {part} FOR VALUES FROM ({start}) TO ({end})"
            ),
        ]
    }

    /// Returns the name of a partition, which contains its first day.
    fn partition_name(&self, start_ms: i64) -> String {
        let day = jiff::Timestamp::from_millisecond(start_ms).unwrap_or_default();
        format!("{}_p{}", self.table, day.to_zoned(TimeZone::UTC).strftime("%Y%m%d"))
    }

    /// Returns the start of a partition, or `None` if the name is not that of one.
    fn partition_start(&self, name: &str) -> Option<i64> {
        parse_partition_start(&self.table, name)
    }
}

/// Returns the start of the first day of a partition, or `None` if the name is not that of one.
pub fn parse_partition_start(table: &str, part: &str) -> Option<i64> {
    let day = part.strip_prefix(table)?.strip_prefix("_p")?;
    let day = Date::strptime("%Y%m%d", day).ok()?;
    Some(day.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp(1_773_144_000_000);

    fn daily_table(kept_days: i64) -> PartitionedTable {
        let expired_before = NOON.plus_ms(-kept_days * DAY_MS);
        PartitionedTable { table: "verifications".into(), span_days: 1, expired_before }
    }

    #[test]
    fn statements_create_partitions_when_next_two_days_have_none() {
        let statements = daily_table(30).plan_statements(&["verifications_p20260311".into()], NOON);

        let attached: Vec<_> = statements.iter().filter(|sql| sql.starts_with("ALTER")).collect();
        assert_eq!(
            attached,
            [
                "ALTER TABLE verifications ATTACH PARTITION verifications_p20260310 \
                FOR VALUES FROM (1773100800000) TO (1773187200000)",
                "ALTER TABLE verifications ATTACH PARTITION verifications_p20260312 \
                FOR VALUES FROM (1773273600000) TO (1773360000000)",
            ]
        );
    }

    #[test]
    fn statements_drop_partition_when_its_last_moment_is_past_retention() {
        let existing = |first: &str| -> Vec<String> {
            [first, "20260310", "20260311", "20260312"]
                .map(|d| format!("verifications_p{d}"))
                .into()
        };

        assert_eq!(
            daily_table(1).plan_statements(&existing("20260309"), NOON),
            Vec::<String>::new()
        );
        assert_eq!(
            daily_table(1).plan_statements(&existing("20260308"), NOON),
            ["DROP TABLE verifications_p20260308"]
        );
    }

    #[test]
    fn start_returns_none_when_name_is_of_another_partition() {
        assert_eq!(daily_table(1).partition_start("verifications_rest"), None);
        assert_eq!(daily_table(1).partition_start("verifications_per_minute_p20260101"), None);
    }
}
