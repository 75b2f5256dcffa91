//! Implements reads of the log of verifications.
//!
//! Totals and rollups show which hours and minutes contain selected events, and how many events there are, so that only
//! these are read, in statements for a bounded number of events. No index of the events themselves has their outcome, key or
//! identity.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::RollupUnit;
use serde_json::json;
use sqlx::{AssertSqlSafe, query_as};

use super::rollups::{HAS_EXTERNAL_ID, unit_start_sql};
use super::{Connection, RowQuery};
use crate::recent::VerificationRow;
use crate::verification_log::{LogFilter, LogReads, LogRows};

/// The approximate number of events that one statement reads.
const STATEMENT_EVENTS_MAX: i64 = 5_000;
/// The approximate number of events that are read for a page.
const EVENTS_READ_MAX: i64 = 40_000;
/// The maximum number of hours that one statement lists.
const HOURS_MAX: i64 = 100;
/// The maximum number of minutes of a key or an identity that are read for a page. Each has a selected event, unless it was
/// deleted.
const SERIES_MINUTES_MAX: usize = 60;

/// A unit of time that contains selected events.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
struct SpanRow {
    time: Timestamp,
    /// The number of all events in it.
    events: i64,
    /// The number of the selected ones, as far as it is known.
    selected: i64,
    /// The APIs of the selected ones, a JSON list.
    api_ids: String,
}

/// A span of time with selected events, within the bounds of the filter.
#[derive(Debug, Clone, Copy)]
struct EventSpan {
    from: Timestamp,
    /// The exclusive end.
    until: Timestamp,
    /// The approximate number of all events in it.
    events: i64,
    selected: i64,
}

/// Reads the spans of a page, newest first, until it is full or too many events were read.
struct LogScan<'a> {
    connection: &'a mut Connection,
    filter: LogFilter<'a>,
    events_read: i64,
    page: LogRows,
}

#[async_trait]
impl LogReads for Connection {
    async fn list_log(&mut self, filter: &LogFilter<'_>) -> Result<LogRows> {
        let mut scan =
            LogScan { connection: self, filter: *filter, events_read: 0, page: LogRows::default() };
        match (filter.key_id, filter.external_id) {
            ("", "") => scan.read_hours().await?,
            _ => scan.read_minutes_of_series().await?,
        }
        Ok(scan.page)
    }
}

impl LogScan<'_> {
    fn is_done(&self) -> bool {
        self.page.rows.len() >= self.filter.rows_max || self.page.unread_before.is_some()
    }

    /// Returns how many more events the page has room for.
    fn room(&self) -> i64 {
        let room = self.filter.rows_max.saturating_sub(self.page.rows.len());
        i64::try_from(room).unwrap_or(i64::MAX)
    }

    /// Reads the hours that have selected events by the totals, which are written with the events.
    async fn read_hours(&mut self) -> Result<()> {
        let mut until = self.filter.until_time;
        loop {
            let hours = self.list_hours(until).await?;
            let mut rest = hours.as_slice();
            while !rest.is_empty() && !self.is_done() {
                let needed = count_until(rest, self.room(), |hour| hour.selected);
                let spans = self.list_minutes(&rest[..needed]).await?;
                self.read_spans(&spans).await?;
                rest = &rest[needed..];
            }
            let has_more = i64::try_from(hours.len()).is_ok_and(|count| count >= HOURS_MAX);
            match hours.last().filter(|_| has_more && !self.is_done()) {
                Some(last) => until = last.time,
                None => return Ok(()),
            }
        }
    }

    /// Reads the minutes in which a key or an identity has selected events.
    async fn read_minutes_of_series(&mut self) -> Result<()> {
        let minutes = self.find_minutes_of_series().await?;
        let spans: Vec<_> =
            minutes.iter().map(|minute| self.to_span(minute, RollupUnit::Minute)).collect();
        self.read_spans(&spans).await?;
        let has_more = minutes.len() >= SERIES_MINUTES_MAX;
        if let Some(last) = minutes.last().filter(|_| has_more && !self.is_done()) {
            self.page.unread_before = Some(last.time);
        }
        Ok(())
    }

    /// Reads the selected events of spans, the latest first, as many spans at once as the page needs.
    async fn read_spans(&mut self, spans: &[EventSpan]) -> Result<()> {
        let mut rest = spans;
        while let [first, ..] = rest
            && !self.is_done()
        {
            if first.events > STATEMENT_EVENTS_MAX {
                self.read_in_slices(*first).await?;
                rest = &rest[1..];
                continue;
            }
            let needed = count_until(rest, self.room(), |span| span.selected);
            let read = count_until(&rest[..needed], STATEMENT_EVENTS_MAX, |span| span.events);
            self.read_at_once(&rest[..read]).await?;
            rest = &rest[read..];
        }
        Ok(())
    }

    /// Reads the selected events of a span in parts, the latest first.
    async fn read_in_slices(&mut self, span: EventSpan) -> Result<()> {
        let length = span.until.0 - span.from.0;
        let slices = (span.events / STATEMENT_EVENTS_MAX).saturating_add(1).min(length);
        for slice in (0..slices).rev() {
            if self.is_done() {
                return Ok(());
            }
            let bound = |at: i64| span.from.plus_ms(length * at / slices);
            let (from, until) = (bound(slice), bound(slice + 1));
            let events = span.events / slices;
            self.read_at_once(&[EventSpan { from, until, events, ..span }]).await?;
        }
        Ok(())
    }

    async fn read_at_once(&mut self, spans: &[EventSpan]) -> Result<()> {
        if self.events_read >= EVENTS_READ_MAX {
            self.page.unread_before = spans.first().map(|span| span.until);
            return Ok(());
        }
        self.events_read += spans.iter().map(|span| span.events + 1).sum::<i64>();
        let rows = self.list_events(spans).await?;
        self.page.rows.extend(rows);
        Ok(())
    }

    /// Returns the part of a unit of time that is within the bounds of the filter.
    fn to_span(&self, row: &SpanRow, unit: RollupUnit) -> EventSpan {
        let end = unit.start_of_next(row.time);
        let from = row.time.max(self.filter.from_time);
        let until = end.min(self.filter.until_time);
        let events = row.events.saturating_mul(until.0 - from.0) / (end.0 - row.time.0);
        EventSpan { from, until, events: events.max(0), selected: row.selected }
    }

    /// Returns the hours before a time that contain selected events, the latest first.
    async fn list_hours(&mut self, until: Timestamp) -> Result<Vec<SpanRow>> {
        let is_selected =
            "workspace_id = $3 AND ($4 = '' OR api_id = $4) AND ($5 = '' OR outcome = $5)";
        let api_ids = array!("DISTINCT CASE WHEN {is_selected} THEN api_id END");
        let sql = format!(
            "SELECT time, CAST(SUM(count) AS BIGINT) AS events,
                CAST(SUM(CASE WHEN {is_selected} THEN count ELSE 0 END) AS BIGINT) AS selected,
                {api_ids} AS api_ids
            FROM verification_totals
            WHERE unit = 'hour' AND time >= $1 AND time < $2 AND api_id <> ''
            GROUP BY time
            HAVING SUM(CASE WHEN {is_selected} THEN 1 ELSE 0 END) > 0
            ORDER BY time DESC
            LIMIT $6"
        )
        .replace("{is_selected}", is_selected);
        let filter = &self.filter;
        let from = RollupUnit::Hour.start_of(filter.from_time);
        let query = query_as(AssertSqlSafe(sql)).bind(from).bind(until).bind(filter.workspace);
        let query = query.bind(filter.api_id).bind(filter.outcome).bind(HOURS_MAX);
        Ok(query.fetch_all(&mut *self.connection).await?)
    }

    /// Returns the minutes of hours that contain selected events, the latest first. An hour without minutes is one span,
    /// because the retention of minutes may be shorter than that of events.
    async fn list_minutes(&mut self, hours: &[SpanRow]) -> Result<Vec<EventSpan>> {
        let sql = concat!(
            "SELECT e.time, CAST(SUM(e.count) AS BIGINT) AS selected, '[]' AS api_ids,
                (SELECT CAST(SUM(a.count) AS BIGINT) FROM verification_totals a
                    WHERE a.unit = 'minute' AND a.time = e.time AND a.api_id <> '') AS events
            FROM ",
            rows_of_items!(
                "$1",
                "verification_totals",
                "e.time, e.count",
                "e.workspace_id = $2 AND e.api_id = item ->> 'api' AND e.unit = 'minute'
                    AND e.time >= CAST(item ->> 'from' AS BIGINT)
                    AND e.time < CAST(item ->> 'until' AS BIGINT)
                    AND ($3 = '' OR e.outcome = $3)"
            ),
            " GROUP BY e.time ORDER BY e.time DESC"
        );
        let mut items = Vec::new();
        for hour in hours {
            let span = self.to_span(hour, RollupUnit::Hour);
            let (from, until) = (RollupUnit::Minute.start_of(span.from), span.until);
            let ids: Vec<Option<String>> = serde_json::from_str(&hour.api_ids).unwrap_or_default();
            let item = |api| json!({ "api": api, "from": from.0, "until": until.0 });
            items.extend(ids.into_iter().flatten().map(item));
        }
        let query = query_as(sql).bind(json!(items).to_string());
        let query = query.bind(self.filter.workspace).bind(self.filter.outcome);
        let minutes: Vec<SpanRow> = query.fetch_all(&mut *self.connection).await?;
        let mut spans: Vec<_> =
            minutes.iter().map(|minute| self.to_span(minute, RollupUnit::Minute)).collect();
        let has_minutes = |hour: &&SpanRow| {
            minutes.iter().any(|minute| RollupUnit::Hour.start_of(minute.time) == hour.time)
        };
        let whole = hours.iter().filter(|hour| !has_minutes(hour));
        spans.extend(whole.map(|hour| self.to_span(hour, RollupUnit::Hour)));
        spans.sort_by_key(|span| std::cmp::Reverse(span.from));
        Ok(spans)
    }

    /// Returns the latest minutes in which a key or an identity has selected events. Its days lead to them: a busy one has
    /// events in most minutes, of which only those of the latest days are read.
    async fn find_minutes_of_series(&mut self) -> Result<Vec<SpanRow>> {
        let days = self.list_days_of_series().await?;
        let (mut minutes, mut until) = (Vec::new(), self.filter.until_time);
        let mut rest = days.as_slice();
        while !rest.is_empty() && minutes.len() < SERIES_MINUTES_MAX {
            // Each minute has at least one of the events.
            let missing = SERIES_MINUTES_MAX - minutes.len();
            let missing = i64::try_from(missing).unwrap_or(i64::MAX);
            let needed = count_until(rest, missing, |(_, selected)| *selected);
            let first = rest[needed - 1].0;
            minutes.extend(self.list_minutes_of_series(first, until, missing).await?);
            (rest, until) = (&rest[needed..], first);
        }
        Ok(minutes)
    }

    /// Returns the days in which a key or an identity has selected events, the latest first, and the number of these events.
    /// The first and the last day may have only events beyond the bounds of the filter.
    async fn list_days_of_series(&mut self) -> Result<Vec<(Timestamp, i64)>> {
        let sql = format!(
            "WITH days AS MATERIALIZED ({})
            SELECT time, CAST(SUM(count) AS BIGINT) FROM days GROUP BY time ORDER BY time DESC",
            series_units_sql(&self.filter, RollupUnit::Day)
        );
        let from = RollupUnit::Day.start_of(self.filter.from_time);
        let query = bind_series(query_as(AssertSqlSafe(sql)), &self.filter);
        let query = query.bind(from).bind(self.filter.until_time);
        Ok(query.fetch_all(&mut *self.connection).await?)
    }

    /// Returns the latest minutes of a part of the time range in which a key or an identity has selected events.
    async fn list_minutes_of_series(
        &mut self,
        from: Timestamp,
        until: Timestamp,
        max: i64,
    ) -> Result<Vec<SpanRow>> {
        // The minutes are materialized, so that events are counted only for those of the page.
        let sql = format!(
            "WITH latest AS MATERIALIZED (
                SELECT m.time, CAST(SUM(m.count) AS BIGINT) AS selected
                FROM ({}) m
                GROUP BY m.time
                ORDER BY m.time DESC
                LIMIT $8
            )
            SELECT l.time, l.selected, '[]' AS api_ids, (SELECT CAST(COALESCE(SUM(t.count), 0) AS BIGINT)
                FROM verification_totals t
                WHERE t.unit = 'minute' AND t.time = l.time AND t.api_id <> '') AS events
            FROM latest l
            ORDER BY l.time DESC",
            series_units_sql(&self.filter, RollupUnit::Minute)
        );
        let from = from.max(RollupUnit::Minute.start_of(self.filter.from_time));
        let query = bind_series(query_as(AssertSqlSafe(sql)), &self.filter);
        let query = query.bind(from).bind(until).bind(max);
        Ok(query.fetch_all(&mut *self.connection).await?)
    }

    /// Returns the latest selected events of spans, as many as the page has room for.
    async fn list_events(&mut self, spans: &[EventSpan]) -> Result<Vec<VerificationRow>> {
        let sql = concat!(
            "SELECT e.time, e.request_id, s.api_id, s.key_id, s.external_id, s.outcome, s.tags,
                e.spent_credits, e.latency_us, e.region, e.reason
            FROM ",
            events_of_spans!(
                "$2",
                "verifications",
                "e.time, e.series, e.request_id, e.spent_credits, e.latency_us, e.region, e.reason"
            ),
            with_series!("verification_series"),
            " WHERE s.id = e.series AND s.workspace_id = $1
                AND ($3 = '' OR s.api_id = $3) AND ($4 = '' OR s.key_id = $4)
                AND ($5 = '' OR s.external_id = $5) AND ($6 = '' OR s.outcome = $6)
                AND ($7 = '' OR e.time < $8 OR e.request_id > $7)
            ORDER BY e.time DESC, e.request_id
            LIMIT $9"
        );
        let ranges: Vec<_> = spans.iter().map(|span| [span.from.0, span.until.0]).collect();
        let filter = &self.filter;
        let query = query_as(sql).bind(filter.workspace).bind(json!(ranges).to_string());
        let query = query.bind(filter.api_id).bind(filter.key_id).bind(filter.external_id);
        let query = query
            .bind(filter.outcome)
            .bind(filter.after_request)
            .bind(filter.until_time.plus_ms(-1));
        Ok(query.bind(self.room()).fetch_all(&mut *self.connection).await?)
    }
}

/// Returns the SQL for the units of time in which a key or an identity has selected events, and how many: by its rollups, and by
/// the events that are not rolled up yet. A unit may have several rows. `$1` to `$5` are bound by [`bind_series`]; `$6` and
/// `$7` are the bounds.
fn series_units_sql(filter: &LogFilter<'_>, unit: RollupUnit) -> String {
    let events = events_of_batches!("verifications", "e.time, e.series");
    let pending = is_pending!("b.summed");
    // An index that has either leads to the series.
    let key_id = if filter.key_id.is_empty() { "$2 = ''" } else { "s.key_id = $2" };
    let external_id = match filter.external_id {
        "" => "$3 = ''",
        _ => HAS_EXTERNAL_ID,
    };
    let selected = format!(
        "s.workspace_id = $1 AND {key_id} AND {external_id} AND ($4 = '' OR s.api_id = $4)
            AND ($5 = '' OR s.outcome = $5)"
    );
    let (name, start) = (unit.as_str(), unit_start_sql(unit));
    format!(
        "SELECT r.time, r.count FROM verification_series s CROSS JOIN verifications_per_{name} r
        WHERE r.series = s.id AND {selected} AND r.time >= $6 AND r.time < $7
        UNION ALL
        SELECT {start} AS time, CAST(1 AS BIGINT) AS count
        FROM {events} CROSS JOIN verification_series s
        WHERE {pending} AND s.id = e.series AND {selected} AND e.time >= $6 AND e.time < $7"
    )
}

/// Binds the values `$1` to `$5` of [`series_units_sql`].
fn bind_series<'q, Row>(query: RowQuery<'q, Row>, filter: &LogFilter<'q>) -> RowQuery<'q, Row> {
    let query = query.bind(filter.workspace).bind(filter.key_id).bind(filter.external_id);
    query.bind(filter.api_id).bind(filter.outcome)
}

/// Returns how many of the first items have `amount` together: at least one, and all if they have less.
fn count_until<T>(items: &[T], amount: i64, amount_of: impl Fn(&T) -> i64) -> usize {
    let mut sum = 0_i64;
    let reached = items.iter().position(|item| {
        sum = sum.saturating_add(amount_of(item));
        sum >= amount
    });
    reached.map_or(items.len(), |last| last + 1)
}
