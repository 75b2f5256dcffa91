//! The parts of the tables of events in Postgres: one for each span of days, made ahead and dropped whole.

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::{EventKind, Retention};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use sqlx::{AssertSqlSafe, PgPool, query, query_scalar};

const DAY_MS: i64 = 86_400_000;
/// How far ahead parts are made: a server that cannot make any for a day still writes into its own.
const AHEAD_MS: i64 = 2 * DAY_MS;
/// Any number that nothing else in the database locks.
pub const LOCK: i64 = 5_120_773_401;

/// A table in parts, how many days each holds, and how many days are kept.
struct PartitionedTable {
    table: String,
    span_days: i64,
    kept_days: i64,
}

/// Makes the parts of the days to come, and drops those whose every row is older than it is kept. Of replicas that
/// come at once one does it.
pub async fn keep(pool: &PgPool, kind: EventKind, kept: &Retention, now: Timestamp) -> Result<()> {
    let raw = kind.table();
    let parted = [
        PartitionedTable { table: raw.to_owned(), span_days: 1, kept_days: kept.raw.into() },
        PartitionedTable {
            table: format!("{raw}_per_minute"),
            span_days: 1,
            kept_days: kept.minute.into(),
        },
        PartitionedTable {
            table: format!("{raw}_per_hour"),
            span_days: 30,
            kept_days: kept.hour.into(),
        },
    ];
    for parted in parted {
        let mut tx = super::postgres::begin(pool).await?;
        let is_free: bool = query_scalar("SELECT pg_try_advisory_xact_lock($1)")
            .bind(LOCK)
            .fetch_one(&mut *tx)
            .await?;
        if !is_free {
            return Ok(());
        }
        // What reads or writes the table goes first: the next attempt is soon enough.
        query("SET LOCAL lock_timeout = '2s'").execute(&mut *tx).await?;
        let there: Vec<String> = query_scalar(
            "SELECT CAST(c.relname AS TEXT) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = to_regclass($1)",
        )
        .bind(&parted.table)
        .fetch_all(&mut *tx)
        .await?;
        for sql in parted.statements(&there, now) {
            query(AssertSqlSafe(sql)).execute(&mut *tx).await?;
        }
        tx.commit().await?;
    }
    Ok(())
}

impl PartitionedTable {
    fn statements(&self, there: &[String], now: Timestamp) -> Vec<String> {
        let span_ms = self.span_days * DAY_MS;
        let first = now.0.div_euclid(span_ms) * span_ms;
        let ahead = (0..).map(|n| first + n * span_ms).take_while(|at| *at <= now.0 + AHEAD_MS);
        let missing = ahead.filter(|start| !there.contains(&self.name(*start)));
        let made = missing.flat_map(|start| self.made(start, start + span_ms));
        let cut = now.0 - self.kept_days * DAY_MS;
        let is_over = |name: &&String| self.start(name).is_some_and(|start| start + span_ms <= cut);
        let over = there.iter().filter(is_over).map(|name| format!("DROP TABLE {name}"));
        made.chain(over).collect()
    }

    /// A part, with what was written before there was one.
    fn made(&self, start: i64, end: i64) -> [String; 4] {
        let (table, part) = (&self.table, self.name(start));
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

    /// A part is called by its first day.
    fn name(&self, start_ms: i64) -> String {
        let day = jiff::Timestamp::from_millisecond(start_ms).unwrap_or_default();
        format!("{}_p{}", self.table, day.to_zoned(TimeZone::UTC).strftime("%Y%m%d"))
    }

    /// Absent: it is none of these parts.
    fn start(&self, name: &str) -> Option<i64> {
        day_of(&self.table, name)
    }
}

/// When the first day of a table's part begins. Absent: its name is none of such a part.
pub fn day_of(table: &str, part: &str) -> Option<i64> {
    let day = part.strip_prefix(table)?.strip_prefix("_p")?;
    let day = Date::strptime("%Y%m%d", day).ok()?;
    Some(day.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp(1_773_144_000_000);

    fn days(kept_days: i64) -> PartitionedTable {
        PartitionedTable { table: "verifications".into(), span_days: 1, kept_days }
    }

    #[test]
    fn parts_are_made_for_today_and_two_days_ahead() {
        let statements = days(30).statements(&["verifications_p20260311".into()], NOON);

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
    fn a_part_is_dropped_when_its_last_moment_is_no_longer_kept() {
        let there = |first: &str| -> Vec<String> {
            [first, "20260310", "20260311", "20260312"]
                .map(|d| format!("verifications_p{d}"))
                .into()
        };

        assert_eq!(days(1).statements(&there("20260309"), NOON), Vec::<String>::new());
        assert_eq!(
            days(1).statements(&there("20260308"), NOON),
            ["DROP TABLE verifications_p20260308"]
        );
    }

    #[test]
    fn the_rest_is_no_part_of_days() {
        assert_eq!(days(1).start("verifications_rest"), None);
        assert_eq!(days(1).start("verifications_per_minute_p20260101"), None);
    }
}
