//! Finds the spans in which selected series have events, by their rollups.

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::RollupUnit;
use sqlx::{AssertSqlSafe, FromRow, query_as};

use super::super::Database;
use super::super::rollup_source::unit_start_sql;
use super::tables::LogTables;
use super::{EventSpan, LogScan, SERIES_SPANS_MAX, SpanRow, count_until};

impl<Row> LogScan<'_, Row>
where
    Row: for<'r> FromRow<'r, <Database as sqlx::Database>::Row> + Send + Unpin,
{
    /// Returns the latest minutes in which selected series have events, and the hours of those whose minutes are not retained.
    /// Their days lead to them: busy series have events in most minutes, of which only those of the latest days are read.
    pub(super) async fn find_spans_of_series(&mut self) -> Result<Vec<EventSpan>> {
        let days = self.list_days_of_series().await?;
        let minutes_since = self.first_hour_with_minutes();
        let (mut spans, mut until) = (Vec::new(), self.filter.until_time);
        let mut rest = days.as_slice();
        while !rest.is_empty() && spans.len() < SERIES_SPANS_MAX {
            // Each span has at least one of the events.
            let missing = SERIES_SPANS_MAX - spans.len();
            let missing = i64::try_from(missing).unwrap_or(i64::MAX);
            let needed = count_until(rest, missing, |(_, selected)| *selected);
            let first = rest[needed - 1].0;
            let with_minutes = (RollupUnit::Minute, first.max(minutes_since), until);
            let without = (RollupUnit::Hour, first, until.min(minutes_since));
            for (unit, from, to) in [with_minutes, without] {
                // More minutes than there is room for are left to the next page, and so are the hours before them.
                if from < to && spans.len() < SERIES_SPANS_MAX {
                    let rows = self.list_units_of_series(unit, from, to, missing).await?;
                    spans.extend(rows.iter().map(|row| self.to_span(row, unit)));
                }
            }
            (rest, until) = (&rest[needed..], first);
        }
        Ok(spans)
    }

    /// Returns the start of the first hour all of whose minutes are retained.
    pub(super) fn first_hour_with_minutes(&self) -> Timestamp {
        RollupUnit::Hour.start_of_next(self.filter.minutes_since.plus_ms(-1))
    }

    /// Returns the days in which selected series have events, the latest first, and the number of these events. The first and
    /// the last day may have only events beyond the bounds of the filter.
    async fn list_days_of_series(&mut self) -> Result<Vec<(Timestamp, i64)>> {
        let sql = format!(
            "WITH days AS MATERIALIZED ({})
            SELECT time, CAST(SUM(count) AS BIGINT) FROM days GROUP BY time ORDER BY time DESC",
            self.series_units_sql(RollupUnit::Day)
        );
        let from = RollupUnit::Day.start_of(self.filter.from_time);
        let query = self.bind_series(query_as(AssertSqlSafe(sql)));
        let query = query.bind(from).bind(self.filter.until_time);
        Ok(query.fetch_all(&mut *self.connection).await?)
    }

    /// Returns the latest units of a part of the time range in which selected series have events.
    async fn list_units_of_series(
        &mut self,
        unit: RollupUnit,
        from: Timestamp,
        until: Timestamp,
        max: i64,
    ) -> Result<Vec<SpanRow>> {
        let LogTables { totals, resource, .. } = self.tables;
        let (name, units) = (unit.as_str(), self.series_units_sql(unit));
        // The units are materialized, so that events are counted only for those of the page.
        let sql = format!(
            "WITH latest AS MATERIALIZED (
                SELECT m.time, CAST(SUM(m.count) AS BIGINT) AS selected
                FROM ({units}) m
                GROUP BY m.time
                ORDER BY m.time DESC
                LIMIT $9
            )
            SELECT l.time, l.selected, '[]' AS resource_ids,
                (SELECT CAST(COALESCE(SUM(t.count), 0) AS BIGINT) FROM {totals} t
                    WHERE t.unit = '{name}' AND t.time = l.time AND t.{resource} <> '') AS events
            FROM latest l
            ORDER BY l.time DESC"
        );
        let from = from.max(unit.start_of(self.filter.from_time));
        let query = self.bind_series(query_as(AssertSqlSafe(sql)));
        let query = query.bind(from).bind(until).bind(max);
        Ok(query.fetch_all(&mut *self.connection).await?)
    }

    /// Returns the SQL for the units of time in which selected series have events, and how many: by their rollups, and by the
    /// events that are not rolled up yet. A unit may have several rows. `$1` to `$6` are bound by [`Self::bind_series`]; `$7`
    /// and `$8` are the bounds.
    fn series_units_sql(&self, unit: RollupUnit) -> String {
        let (raw, series) = (self.tables.kind.table_name(), self.tables.series);
        let events = events_of_batches!("{raw}", "e.time, e.series").replace("{raw}", raw);
        let pending = is_pending!("b.summed");
        let selected = self.tables.series_condition(self.dimensions);
        let (name, start) = (unit.as_str(), unit_start_sql(unit));
        format!(
            "SELECT r.time, r.count FROM {series} s CROSS JOIN {raw}_per_{name} r
            WHERE r.series = s.id AND {selected} AND r.time >= $7 AND r.time < $8
            UNION ALL
            SELECT {start} AS time, CAST(1 AS BIGINT) AS count
            FROM {events} CROSS JOIN {series} s
            WHERE {pending} AND s.id = e.series AND {selected} AND e.time >= $7 AND e.time < $8"
        )
    }
}
