//! Implements reads of the log of verifications.
//!
//! Totals and rollups show which hours and minutes contain selected events, and how many events there are, so that only
//! these are read, in slices of a bounded number of events. No index of the events themselves has their outcome or key.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::RollupUnit;
use sqlx::{AssertSqlSafe, query_as};

use super::Connection;
use crate::recent::VerificationRow;
use crate::verification_log::{LogFilter, LogReads, LogRows};

/// The approximate number of events that one statement reads.
const SLICE_EVENTS: i64 = 5_000;
/// The approximate number of events that are read for a page.
const EVENTS_READ_MAX: i64 = 40_000;
/// The maximum number of minutes of a key that are read for a page. Each has a selected event, unless it was deleted.
const KEY_MINUTES_MAX: i64 = 60;

/// A unit of time that contains selected events.
#[derive(Debug, Clone, Copy, sqlx_macros::FromRow)]
struct EventSpan {
    time: Timestamp,
    /// The number of all events in it.
    events: i64,
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
        match filter.key_id {
            "" => scan.read_hours().await?,
            _ => scan.read_minutes_of_key().await?,
        }
        Ok(scan.page)
    }
}

impl LogScan<'_> {
    fn is_done(&self) -> bool {
        self.page.rows.len() >= self.filter.rows_max || self.page.unread_before.is_some()
    }

    /// Reads the hours that have selected events by the totals, which are written with the events.
    async fn read_hours(&mut self) -> Result<()> {
        let (from, until) = (self.filter.from_time, self.filter.until_time);
        for hour in self.list_spans(RollupUnit::Hour, from, until).await? {
            let end = RollupUnit::Hour.start_of_next(hour.time);
            let (first, last) = (hour.time.max(from), end.min(until));
            let minutes = self.list_spans(RollupUnit::Minute, first, last).await?;
            // The retention of minutes may be shorter than that of events.
            if minutes.is_empty() {
                self.read_span(hour, end).await?;
            }
            for minute in minutes {
                self.read_span(minute, RollupUnit::Minute.start_of_next(minute.time)).await?;
            }
            if self.is_done() {
                break;
            }
        }
        Ok(())
    }

    /// Reads the minutes in which a key has selected events.
    async fn read_minutes_of_key(&mut self) -> Result<()> {
        let minutes = self.list_minutes_of_key().await?;
        for minute in &minutes {
            self.read_span(*minute, RollupUnit::Minute.start_of_next(minute.time)).await?;
        }
        let has_more = i64::try_from(minutes.len()).is_ok_and(|count| count >= KEY_MINUTES_MAX);
        if let Some(last) = minutes.last().filter(|_| has_more && !self.is_done()) {
            self.page.unread_before = Some(last.time);
        }
        Ok(())
    }

    /// Reads the selected events of a span of time in slices, the latest first.
    async fn read_span(&mut self, span: EventSpan, end: Timestamp) -> Result<()> {
        let slices = (span.events / SLICE_EVENTS).saturating_add(1);
        let length = end.0 - span.time.0;
        for slice in (0..slices.min(length)).rev() {
            if self.is_done() {
                return Ok(());
            }
            let bound = |at: i64| span.time.plus_ms(length * at / slices.min(length));
            let first = bound(slice).max(self.filter.from_time);
            let last = bound(slice + 1).min(self.filter.until_time);
            if first >= last {
                continue;
            }
            if self.events_read >= EVENTS_READ_MAX {
                self.page.unread_before = Some(last);
                return Ok(());
            }
            self.events_read += span.events / slices + 1;
            let rows = self.list_events(first, last).await?;
            self.page.rows.extend(rows);
        }
        Ok(())
    }

    /// Returns the units of time that contain selected events, the latest first.
    async fn list_spans(
        &mut self,
        unit: RollupUnit,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<EventSpan>> {
        let sql = "
            SELECT time, CAST(SUM(count) AS BIGINT) AS events
            FROM verification_totals
            WHERE unit = $1 AND time >= $2 AND time < $3
            GROUP BY time
            HAVING SUM(CASE WHEN workspace_id = $4 AND ($5 = '' OR api_id = $5)
                AND ($6 = '' OR outcome = $6) THEN 1 ELSE 0 END) > 0
            ORDER BY time DESC";
        let query = query_as(sql).bind(unit.as_str()).bind(unit.start_of(from)).bind(until);
        let query = query.bind(self.filter.workspace);
        let query = query.bind(self.filter.api_id).bind(self.filter.outcome);
        Ok(query.fetch_all(&mut *self.connection).await?)
    }

    /// Returns the latest minutes in which the key has selected events: by its rollups, and by the events that are not
    /// rolled up yet.
    async fn list_minutes_of_key(&mut self) -> Result<Vec<EventSpan>> {
        let pending = is_pending!("b.summed");
        let key = "s.workspace_id = $1 AND s.key_id = $2";
        let dimensions = "($3 = '' OR s.api_id = $3) AND ($4 = '' OR s.outcome = $4)";
        let sql = format!(
            "SELECT m.time, (SELECT CAST(COALESCE(SUM(t.count), 0) AS BIGINT)
                FROM verification_totals t WHERE t.unit = 'minute' AND t.time = m.time) AS events
            FROM (
                SELECT r.time FROM verification_series s CROSS JOIN verifications_per_minute r
                WHERE r.series = s.id AND {key} AND {dimensions} AND r.time >= $5 AND r.time < $6
                UNION
                SELECT e.time - e.time % 60000 AS time
                FROM batches b CROSS JOIN verifications e CROSS JOIN verification_series s
                WHERE {pending} AND e.batch = b.id AND e.time BETWEEN b.first_at AND b.last_at
                    AND s.id = e.series AND {key} AND {dimensions} AND e.time >= $5 AND e.time < $6
            ) m
            ORDER BY m.time DESC
            LIMIT $7"
        );
        let filter = &self.filter;
        let query = query_as(AssertSqlSafe(sql)).bind(filter.workspace).bind(filter.key_id);
        let query = query.bind(filter.api_id).bind(filter.outcome);
        let query = query.bind(RollupUnit::Minute.start_of(filter.from_time));
        let query = query.bind(filter.until_time).bind(KEY_MINUTES_MAX);
        Ok(query.fetch_all(&mut *self.connection).await?)
    }

    /// Returns the latest selected events of a span of time, as many as the page has room for.
    async fn list_events(
        &mut self,
        first: Timestamp,
        last: Timestamp,
    ) -> Result<Vec<VerificationRow>> {
        let sql = "
            SELECT e.time, e.request_id, s.api_id, s.key_id, s.external_id, s.outcome, s.tags,
                e.spent_credits, e.latency_us, e.region, e.reason
            FROM verifications e CROSS JOIN verification_series s
            WHERE s.id = e.series AND s.workspace_id = $1 AND e.time >= $2 AND e.time < $3
                AND ($4 = '' OR s.api_id = $4) AND ($5 = '' OR s.key_id = $5)
                AND ($6 = '' OR s.outcome = $6)
                AND ($7 = '' OR e.time < $8 OR e.request_id > $7)
            ORDER BY e.time DESC, e.request_id
            LIMIT $9";
        let filter = &self.filter;
        let room = filter.rows_max.saturating_sub(self.page.rows.len());
        let query = query_as(sql).bind(filter.workspace).bind(first).bind(last);
        let query = query.bind(filter.api_id).bind(filter.key_id).bind(filter.outcome);
        let query = query.bind(filter.after_request).bind(filter.until_time.plus_ms(-1));
        let query = query.bind(i64::try_from(room).unwrap_or(i64::MAX));
        Ok(query.fetch_all(&mut *self.connection).await?)
    }
}
