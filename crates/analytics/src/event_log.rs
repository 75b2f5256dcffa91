//! Reads the logs of verifications and of limit checks in pages, newest first.

use std::fmt;

use foundation::clock::{DAY_MS, Timestamp};
use foundation::error::{Error, Result};
use foundation::id::WorkspaceId;
use foundation::model::{EventKind, RollupUnit};
pub use store::event_log::VerificationLogFilter;
use store::event_log::{LogFilter, LogRows};

use crate::Analytics;
use crate::recent::{RecentCheck, RecentVerification};
use crate::traffic::first_retained;

/// The maximum length of a cursor.
const CURSOR_MAX: usize = 100;

/// Selects events of a page. Empty texts select all.
#[derive(Debug)]
pub struct LogQuery {
    /// The API of verifications, or the namespace of limit checks.
    pub resource_id: String,
    /// `true` and `false` stand for limit checks that were allowed and rejected.
    pub outcome: String,
    pub from_time: Timestamp,
    /// The exclusive end.
    pub until_time: Timestamp,
    /// Where the page before has ended.
    pub cursor: Option<LogCursor>,
    /// The maximum number of events, at least that of one request.
    pub rows_max: usize,
}

/// A position in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogCursor {
    /// Verifications at this time or later have been read.
    until: Timestamp,
    /// Of the last millisecond before that time, only the requests up to this one have been read. Empty: none.
    after_request: String,
}

/// The events of a page, newest first.
#[derive(Debug)]
pub struct LogPage<Event> {
    pub events: Vec<Event>,
    /// The start of the next page; `None` if there is none.
    pub next: Option<LogCursor>,
    /// Earlier events were not compared with the filter yet; the next page continues there.
    pub unread_before: Option<Timestamp>,
}

/// Returns a page of the verifications of a workspace.
pub async fn list_verifications(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    query: &LogQuery,
    verifications: &VerificationLogFilter<'_>,
) -> Result<LogPage<RecentVerification>> {
    let filter = query.to_filter(analytics, workspace, EventKind::Verifications);
    let mut reader = analytics.event_store.read().await?;
    Ok(query.to_page(reader.list_verification_log(&filter, verifications).await?))
}

/// Returns a page of the limit checks of a workspace: of an identifier, or of all if it is empty.
pub async fn list_checks(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    query: &LogQuery,
    identifier: &str,
) -> Result<LogPage<RecentCheck>> {
    let filter = query.to_filter(analytics, workspace, EventKind::Ratelimits);
    let mut reader = analytics.event_store.read().await?;
    Ok(query.to_page(reader.list_check_log(&filter, identifier).await?))
}

/// An event of a log.
trait LogEvent {
    /// Returns its place in the log, which the events of one request share.
    fn place(&self) -> (Timestamp, &str);
}

impl LogEvent for RecentVerification {
    fn place(&self) -> (Timestamp, &str) {
        (self.occurred_at, &self.request_id)
    }
}

impl LogEvent for RecentCheck {
    fn place(&self) -> (Timestamp, &str) {
        (self.occurred_at, &self.request_id)
    }
}

impl LogQuery {
    fn to_filter<'a>(
        &'a self,
        analytics: &Analytics,
        workspace: &'a WorkspaceId,
        kind: EventKind,
    ) -> LogFilter<'a> {
        let retention_ms = i64::from(analytics.retention.for_kind(kind).raw_days) * DAY_MS;
        let cursor = self.cursor.as_ref();
        LogFilter {
            workspace,
            resource_id: &self.resource_id,
            outcome: &self.outcome,
            from_time: self.from_time.max(analytics.clock.now().plus_ms(-retention_ms)),
            until_time: cursor.map_or(self.until_time, |cursor| cursor.until.min(self.until_time)),
            minutes_since: first_retained(analytics, kind, RollupUnit::Minute),
            // A cursor beyond the end of the query has nothing to leave out.
            after_request: cursor
                .filter(|cursor| cursor.until <= self.until_time)
                .map_or("", |cursor| &cursor.after_request),
            // One more than the page has tells whether there is a next page.
            rows_max: self.rows_max + 1,
        }
    }

    fn to_page<Row, Event: From<Row> + LogEvent>(&self, found: LogRows<Row>) -> LogPage<Event> {
        let mut events: Vec<_> = found.rows.into_iter().map(Event::from).collect();
        let has_more = events.len() > self.rows_max;
        if let Some(first_left_out) = events.get(self.rows_max) {
            // A page ends with a whole request, because the next one begins after it.
            let is_other = |event: &Event| event.place() != first_left_out.place();
            let last = events[..self.rows_max].iter().rposition(is_other);
            events.truncate(last.map_or(self.rows_max, |last| last + 1));
        }
        let last = events.last().filter(|_| has_more);
        let unread_before = found.unread_before.filter(|_| !has_more);
        let next = match (last.map(LogEvent::place), unread_before) {
            (Some((occurred_at, request)), _) => {
                Some(LogCursor { until: occurred_at.plus_ms(1), after_request: request.to_owned() })
            }
            (None, Some(until)) => Some(LogCursor { until, after_request: String::new() }),
            (None, None) => None,
        };
        LogPage { events, next, unread_before }
    }
}

impl LogCursor {
    /// Parses a cursor as it is formatted. An empty text is the start of the log.
    pub fn parse(name: &str, text: &str) -> Result<Option<Self>> {
        if text.is_empty() {
            return Ok(None);
        }
        let (until, request) = text.split_once('.').unwrap_or((text, ""));
        let until = until.parse().ok().filter(|until| (0..=MS_MAX).contains(until));
        match until.filter(|_| text.len() <= CURSOR_MAX) {
            Some(until) => {
                Ok(Some(Self { until: Timestamp(until), after_request: request.to_owned() }))
            }
            None => Err(Error::invalid(
                name,
                format!(
                    "{name} must be the position of a page: a time in milliseconds from 0 to {MS_MAX}, \
                    which a dot and a request ID may follow, of at most {CURSOR_MAX} characters"
                ),
            )),
        }
    }
}

/// The latest time of a cursor: the end of the year 9999.
const MS_MAX: i64 = 253_402_300_799_999;

impl fmt::Display for LogCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.after_request.as_str() {
            "" => write!(f, "{}", self.until.0),
            request => write!(f, "{}.{request}", self.until.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_parsed_as_it_is_formatted() {
        let long = format!("1.{}", "r".repeat(CURSOR_MAX - 2));
        for text in ["0", "1700000000000", "1700000000000.req_1", "253402300799999", &long] {
            let cursor = LogCursor::parse("before", text).expect("a cursor").expect("a position");
            assert_eq!(cursor.to_string(), text);
        }
        assert_eq!(LogCursor::parse("before", "").expect("no cursor"), None);
    }

    #[test]
    fn cursor_of_another_form_is_rejected() {
        let long = format!("1.{}", "r".repeat(CURSOR_MAX - 1));
        for text in ["x", "-1", ".req_1", "253402300800000", "1,5", &long] {
            let error = LogCursor::parse("before", text).expect_err(text).to_string();
            assert!(error.contains("before must be"), "{text}: {error}");
        }
    }
}
