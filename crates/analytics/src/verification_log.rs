//! Reads the log of verifications in pages, newest first.

use std::fmt;

use foundation::clock::{DAY_MS, Timestamp};
use foundation::error::{Error, Result};
use foundation::id::WorkspaceId;
use store::verification_log::LogFilter;

use crate::Analytics;
use crate::recent::RecentVerification;

/// The maximum length of a cursor.
const CURSOR_MAX: usize = 100;

/// Selects verifications of a page. Empty texts select all.
#[derive(Debug)]
pub struct LogQuery {
    pub api_id: String,
    pub key_id: String,
    /// The external ID of an identity.
    pub external_id: String,
    pub outcome: String,
    pub from_time: Timestamp,
    /// The exclusive end.
    pub until_time: Timestamp,
    /// Where the page before has ended.
    pub cursor: Option<LogCursor>,
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

/// The verifications of a page, newest first.
#[derive(Debug)]
pub struct LogPage {
    pub verifications: Vec<RecentVerification>,
    /// The start of the next page; `None` if there is none.
    pub next: Option<LogCursor>,
    /// Earlier verifications were not compared with the filter yet; the next page continues there.
    pub unread_before: Option<Timestamp>,
}

/// Returns a page of the verifications of a workspace.
pub async fn list(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    query: &LogQuery,
) -> Result<LogPage> {
    let retention_ms = i64::from(analytics.retention.verifications.raw_days) * DAY_MS;
    let cursor = query.cursor.as_ref();
    let filter = LogFilter {
        workspace,
        api_id: &query.api_id,
        key_id: &query.key_id,
        external_id: &query.external_id,
        outcome: &query.outcome,
        from_time: query.from_time.max(analytics.clock.now().plus_ms(-retention_ms)),
        until_time: cursor.map_or(query.until_time, |cursor| cursor.until.min(query.until_time)),
        // A cursor beyond the end of the query has nothing to leave out.
        after_request: cursor
            .filter(|cursor| cursor.until <= query.until_time)
            .map_or("", |cursor| &cursor.after_request),
        // One more than the page has tells whether there is a next page.
        rows_max: query.rows_max + 1,
    };
    let found = analytics.event_store.read().await?.list_log(&filter).await?;
    let has_more = found.rows.len() > query.rows_max;
    let rows = found.rows.into_iter().take(query.rows_max);
    let verifications: Vec<_> = rows.map(RecentVerification::from).collect();
    let last = verifications.last().filter(|_| has_more);
    let unread_before = found.unread_before.filter(|_| !has_more);
    let next = match (last, unread_before) {
        (Some(last), _) => Some(LogCursor {
            until: last.occurred_at.plus_ms(1),
            after_request: last.request_id.clone(),
        }),
        (None, Some(until)) => Some(LogCursor { until, after_request: String::new() }),
        (None, None) => None,
    };
    Ok(LogPage { verifications, next, unread_before })
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
