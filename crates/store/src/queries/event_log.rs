//! Implements reads of the logs of events.
//!
//! Totals and rollups show which hours and minutes contain selected events, and how many events there are, so that only
//! these are read, in statements for a bounded number of events. No index of the events themselves has their outcome or a
//! dimension of their series. Totals do not contain the region either: all events of these minutes are compared with it.

mod series;
mod tables;

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::RollupUnit;
use serde_json::json;
use sqlx::{AssertSqlSafe, FromRow, query_as};

use super::{Connection, Database, RowQuery};
use crate::event_log::{LogFilter, LogReads, LogRows, VerificationLogFilter};
use crate::recent::{CheckRow, VerificationRow};
use tables::LogTables;

/// The approximate number of events that one statement reads.
const STATEMENT_EVENTS_MAX: i64 = 5_000;
/// The approximate number of events that are read for a page.
const EVENTS_READ_MAX: i64 = 40_000;
/// The approximate number of events that are compared with a region at once.
const REGION_EVENTS: i64 = 1_000;
/// The maximum number of hours that one statement lists.
const HOURS_MAX: i64 = 100;
/// The same for the first statement if all outcomes are selected: mostly, the first hour fills the page.
const FIRST_HOURS_MAX: i64 = 4;
/// The maximum number of spans of selected series that are read for a page. Each has a selected event, unless it was deleted, or an
/// earlier version wrote the series, which then has no region.
const SERIES_SPANS_MAX: usize = 60;

/// A unit of time that contains selected events.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
struct SpanRow {
    time: Timestamp,
    /// The number of all events in it.
    events: i64,
    /// The number of the selected ones, as far as it is known.
    selected: i64,
    /// The APIs or namespaces of the selected ones, a JSON list.
    resource_ids: String,
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
struct LogScan<'a, Row> {
    connection: &'a mut Connection,
    tables: LogTables,
    filter: LogFilter<'a>,
    /// The selected values of the dimensions of the series. Empty: all.
    dimensions: [&'a str; 2],
    /// The selected region of verifications. Empty: all.
    region: &'a str,
    events_read: i64,
    page: LogRows<Row>,
}

#[async_trait]
impl LogReads for Connection {
    async fn list_verification_log(
        &mut self,
        filter: &LogFilter<'_>,
        verifications: &VerificationLogFilter<'_>,
    ) -> Result<LogRows<VerificationRow>> {
        let dimensions = [verifications.key_id, verifications.external_id];
        let region = verifications.region;
        LogScan::new(self, tables::VERIFICATIONS, filter, dimensions, region).read().await
    }

    async fn list_check_log(
        &mut self,
        filter: &LogFilter<'_>,
        identifier: &str,
    ) -> Result<LogRows<CheckRow>> {
        LogScan::new(self, tables::CHECKS, filter, [identifier, ""], "").read().await
    }
}

impl<'a, Row> LogScan<'a, Row>
where
    Row: for<'r> FromRow<'r, <Database as sqlx::Database>::Row> + Send + Unpin,
{
    fn new(
        connection: &'a mut Connection,
        tables: LogTables,
        filter: &LogFilter<'a>,
        dimensions: [&'a str; 2],
        region: &'a str,
    ) -> Self {
        let page = LogRows { rows: Vec::new(), unread_before: None };
        Self { connection, tables, filter: *filter, dimensions, region, events_read: 0, page }
    }

    async fn read(mut self) -> Result<LogRows<Row>> {
        match self.dimensions {
            ["", ""] => self.read_hours().await?,
            _ => self.read_spans_of_series().await?,
        }
        Ok(self.page)
    }

    fn is_done(&self) -> bool {
        self.page.rows.len() >= self.filter.rows_max || self.page.unread_before.is_some()
    }

    /// Returns how many more events the page has room for.
    fn room(&self) -> i64 {
        let room = self.filter.rows_max.saturating_sub(self.page.rows.len());
        i64::try_from(room).unwrap_or(i64::MAX)
    }

    /// Returns how many events of the selected ones to read at once. How many of them are of a region is not known.
    fn read_size(&self) -> i64 {
        if self.region.is_empty() { self.room() } else { REGION_EVENTS }
    }

    /// Reads the hours that have selected events by the totals, which are written with the events.
    async fn read_hours(&mut self) -> Result<()> {
        let mut until = self.filter.until_time;
        let mut hours_max =
            if self.filter.outcome.is_empty() { FIRST_HOURS_MAX } else { HOURS_MAX };
        loop {
            let hours = self.list_hours(until, hours_max).await?;
            let mut rest = hours.as_slice();
            while !rest.is_empty() && !self.is_done() {
                let needed = count_until(rest, self.read_size(), |hour| hour.selected);
                let spans = self.list_minutes(&rest[..needed]).await?;
                self.read_spans(&spans).await?;
                rest = &rest[needed..];
            }
            let has_more = i64::try_from(hours.len()).is_ok_and(|count| count >= hours_max);
            match hours.last().filter(|_| has_more && !self.is_done()) {
                Some(last) => (until, hours_max) = (last.time, HOURS_MAX),
                None => return Ok(()),
            }
        }
    }

    /// Reads the spans in which selected series have events.
    async fn read_spans_of_series(&mut self) -> Result<()> {
        let spans = self.find_spans_of_series().await?;
        self.read_spans(&spans).await?;
        let has_more = spans.len() >= SERIES_SPANS_MAX;
        if let Some(last) = spans.last().filter(|_| has_more && !self.is_done()) {
            self.page.unread_before = Some(last.from);
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
            let needed = count_until(rest, self.read_size(), |span| span.selected);
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

    /// Returns the hours before a time that contain selected events, the latest first, up to `max`.
    async fn list_hours(&mut self, until: Timestamp, max: i64) -> Result<Vec<SpanRow>> {
        let LogTables { totals, resource, .. } = self.tables;
        let is_selected = self.tables.resource_condition("t");
        let resource_ids = array!("DISTINCT CASE WHEN {is_selected} THEN t.{resource} END")
            .replace("{is_selected}", &is_selected)
            .replace("{resource}", resource);
        // Verifications that found no key have no API, and are no events.
        let sql = format!(
            "SELECT t.time, CAST(SUM(t.count) AS BIGINT) AS events,
                CAST(SUM(CASE WHEN {is_selected} THEN t.count ELSE 0 END) AS BIGINT) AS selected,
                {resource_ids} AS resource_ids
            FROM {totals} t
            WHERE t.unit = 'hour' AND t.time >= $4 AND t.time < $5 AND t.{resource} <> ''
            GROUP BY t.time
            HAVING SUM(CASE WHEN {is_selected} THEN 1 ELSE 0 END) > 0
            ORDER BY t.time DESC
            LIMIT $6"
        );
        let from = RollupUnit::Hour.start_of(self.filter.from_time);
        let query = bind_resource(query_as(AssertSqlSafe(sql)), &self.filter);
        let query = query.bind(from).bind(until).bind(max);
        Ok(query.fetch_all(&mut *self.connection).await?)
    }

    /// Returns the minutes of hours that contain selected events, the latest first. An hour whose minutes are not retained, which
    /// may be shorter than events are, is one span.
    async fn list_minutes(&mut self, hours: &[SpanRow]) -> Result<Vec<EventSpan>> {
        let LogTables { totals, resource, .. } = self.tables;
        let rows = rows_of_items!(
            "$4",
            "{totals}",
            "e.time, e.count",
            "{is_selected} AND e.{resource} = item ->> 'resource' AND e.unit = 'minute'
                AND e.time >= CAST(item ->> 'from' AS BIGINT)
                AND e.time < CAST(item ->> 'until' AS BIGINT)"
        )
        .replace("{is_selected}", &self.tables.resource_condition("e"))
        .replace("{resource}", resource)
        .replace("{totals}", totals);
        let sql = format!(
            "SELECT e.time, CAST(SUM(e.count) AS BIGINT) AS selected, '[]' AS resource_ids,
                (SELECT CAST(SUM(a.count) AS BIGINT) FROM {totals} a
                    WHERE a.unit = 'minute' AND a.time = e.time AND a.{resource} <> '') AS events
            FROM {rows} GROUP BY e.time ORDER BY e.time DESC"
        );
        // The latest hours come first.
        let minutes_since = self.first_hour_with_minutes();
        let (hours, whole) =
            hours.split_at(hours.partition_point(|hour| hour.time >= minutes_since));
        let mut items = Vec::new();
        for hour in hours {
            let span = self.to_span(hour, RollupUnit::Hour);
            let (from, until) = (RollupUnit::Minute.start_of(span.from), span.until);
            let ids: Vec<Option<String>> =
                serde_json::from_str(&hour.resource_ids).unwrap_or_default();
            let item = |id| json!({ "resource": id, "from": from.0, "until": until.0 });
            items.extend(ids.into_iter().flatten().map(item));
        }
        let query = bind_resource(query_as(AssertSqlSafe(sql)), &self.filter);
        let query = query.bind(json!(items).to_string());
        let minutes: Vec<SpanRow> = query.fetch_all(&mut *self.connection).await?;
        let mut spans: Vec<_> =
            minutes.iter().map(|minute| self.to_span(minute, RollupUnit::Minute)).collect();
        let has_minutes = |hour: &&SpanRow| {
            minutes.iter().any(|minute| RollupUnit::Hour.start_of(minute.time) == hour.time)
        };
        let whole = whole.iter().chain(hours.iter().filter(|hour| !has_minutes(hour)));
        spans.extend(whole.map(|hour| self.to_span(hour, RollupUnit::Hour)));
        spans.sort_by_key(|span| std::cmp::Reverse(span.from));
        Ok(spans)
    }

    /// Returns the latest selected events of spans, as many as the page has room for.
    async fn list_events(&mut self, spans: &[EventSpan]) -> Result<Vec<Row>> {
        let LogTables { events, order, .. } = self.tables;
        let sql = format!(
            "{events} WHERE s.id = e.series AND {}
                AND ($8 = '' OR e.time < $9 OR e.request_id > $8)
            ORDER BY e.time DESC, {order}
            LIMIT $10",
            self.tables.event_condition()
        );
        let ranges: Vec<_> = spans.iter().map(|span| [span.from.0, span.until.0]).collect();
        let query = self.bind_series(query_as(AssertSqlSafe(sql))).bind(json!(ranges).to_string());
        let last_millisecond = self.filter.until_time.plus_ms(-1);
        let query = query.bind(self.filter.after_request).bind(last_millisecond).bind(self.room());
        Ok(query.fetch_all(&mut *self.connection).await?)
    }

    /// Binds the values `$1` to `$6` of the conditions of [`LogTables`].
    fn bind_series<'q, R>(&self, query: RowQuery<'q, R>) -> RowQuery<'q, R>
    where
        'a: 'q,
    {
        let [first, second] = self.dimensions;
        bind_resource(query, &self.filter).bind(first).bind(second).bind(self.region)
    }
}

/// Binds the values `$1` to `$3` of the conditions of [`LogTables`].
fn bind_resource<'q, Row>(query: RowQuery<'q, Row>, filter: &LogFilter<'q>) -> RowQuery<'q, Row> {
    query.bind(filter.workspace).bind(filter.resource_id).bind(filter.outcome)
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
