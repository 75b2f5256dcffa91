//! Stores events in ClickHouse and runs queries about them there, if it is configured: its tables and its HTTP
//! client.
//!
//! Requests use HTTP and SQL that every version since 18.16 supports. A value from outside enters a query in one way
//! only: [`bind_texts`] writes it as a quoted string.

mod days;
mod recent;
mod rollups;
mod source;
mod tables;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foundation::error::{Error, QueryErrorKind, Result, innermost_cause};
use foundation::model::{BoundQuery, DeliverySnapshot};
use foundation::tls;
use reqwest::{Client, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use thiserror::Error as ThisError;
use tokio::sync::Semaphore;
use url::Url;

pub use self::recent::UnreadDeliveries;
use super::analytics_query::QueryLimits;

/// The timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The timeout of an internal query.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// The timeout of a write. A delivery makes two, and claims its batches for longer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of rolling up a day of one table. There are two tables, and the day is claimed for longer.
const DAY_TIMEOUT: Duration = Duration::from_mins(10);
/// The maximum number of concurrent queries of callers, and how long one waits for its turn.
const CALLER_QUERIES_MAX: usize = 4;
const PERMIT_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum size of the reply to an internal query.
const READ_MAX_BYTES: usize = 64 * 1024 * 1024;

/// The reason why a request to ClickHouse failed.
#[derive(Debug, ThisError)]
pub enum ClickHouseError {
    /// The request has not reached ClickHouse.
    #[error("ClickHouse cannot be reached: {}", innermost_cause(.0))]
    Unreachable(#[source] reqwest::Error),
    /// The request may have been executed.
    #[error("the connection to ClickHouse was lost: {}", innermost_cause(.0))]
    ConnectionLost(#[source] reqwest::Error),
    #[error("the reply of ClickHouse has more than {0} bytes")]
    ReplyTooLarge(usize),
    /// The error code of ClickHouse, and its message.
    #[error("ClickHouse rejected the request: {1}")]
    Rejected(u32, String),
    #[error("the reply of ClickHouse is invalid: {0}")]
    InvalidReply(#[from] serde_json::Error),
}

impl From<ClickHouseError> for Error {
    fn from(error: ClickHouseError) -> Self {
        match error.is_outage() {
            true => Self::ClickHouseUnreachable(error.to_string()),
            false => Self::ClickHouse(error.to_string()),
        }
    }
}

impl From<reqwest::Error> for ClickHouseError {
    fn from(error: reqwest::Error) -> Self {
        // The URL may contain a password.
        let error = error.without_url();
        if error.is_connect() { Self::Unreachable(error) } else { Self::ConnectionLost(error) }
    }
}

impl ClickHouseError {
    /// Returns whether ClickHouse is unavailable, rather than the request wrong.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::ConnectionLost(_) => true,
            // Too many queries at once; a user that is unknown or no longer valid; shutting down; read-only.
            Self::Rejected(code, _) => [202, 192, 193, 194, 516, 236, 242, 164].contains(code),
            Self::ReplyTooLarge(_) | Self::InvalidReply(_) => false,
        }
    }
}

/// A database on a ClickHouse server.
#[derive(Debug, Clone)]
pub struct ClickHouse {
    http: Client,
    /// Without the user, the password and the database.
    url: Url,
    user: String,
    password: Option<String>,
    database: String,
    /// One permit for each query of a caller that may run.
    caller_query_permits: Arc<Semaphore>,
}

/// Reads the events that had been delivered at one moment.
pub struct ClickHouseReader {
    clickhouse: ClickHouse,
    delivery_snapshot: DeliverySnapshot,
}

/// A reply in the format `JSONCompact`.
#[derive(serde::Deserialize)]
struct JsonReply<T> {
    data: Vec<T>,
}

impl ClickHouse {
    /// Creates a client for `http://user:password@host:8123/database`, or https. No request is sent yet.
    pub fn new(url: &Url) -> Result<Self> {
        let decoded = |text: &str| {
            let text = percent_encoding::percent_decode_str(text);
            text.decode_utf8_lossy().into_owned()
        };
        let database = decoded(url.path().trim_matches('/'));
        let mut bare = url.clone();
        let user = decoded(url.username());
        let password = url.password().map(decoded);
        let _ = (bare.set_username(""), bare.set_password(None));
        bare.set_path("/");
        bare.set_query(None);
        let http = Client::builder()
            .tls_backend_preconfigured(tls::client_config()?)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("keyward/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| {
                Error::Internal(format!("failed to create the client for ClickHouse: {e}"))
            })?;
        Ok(Self {
            http,
            url: bare,
            user: if user.is_empty() { "default".into() } else { user },
            password,
            database: if database.is_empty() { "default".into() } else { database },
            caller_query_permits: Arc::new(Semaphore::new(CALLER_QUERIES_MAX)),
        })
    }

    pub fn reader_at(&self, delivered: DeliverySnapshot) -> ClickHouseReader {
        ClickHouseReader { clickhouse: self.clone(), delivery_snapshot: delivered }
    }

    pub async fn fetch_version(&self) -> std::result::Result<String, ClickHouseError> {
        let rows: Vec<(String,)> = self.fetch_rows("SELECT version()", &[]).await?;
        Ok(rows.into_iter().map(|(version,)| version).collect())
    }

    /// Runs a statement that changes data.
    pub async fn execute(&self, sql: &str) -> std::result::Result<(), ClickHouseError> {
        self.execute_with_timeout(sql, WRITE_TIMEOUT).await
    }

    async fn execute_with_timeout(
        &self,
        sql: &str,
        timeout: Duration,
    ) -> std::result::Result<(), ClickHouseError> {
        let settings = [("wait_end_of_query", "1".to_owned())];
        self.send(&settings, None, sql.to_owned(), timeout, READ_MAX_BYTES).await?;
        Ok(())
    }

    /// Inserts rows, each a JSON object on a line of its own.
    pub async fn insert(
        &self,
        table: &str,
        rows: String,
    ) -> std::result::Result<(), ClickHouseError> {
        let into = format!("INSERT INTO {table} FORMAT JSONEachRow");
        // In one block, and so in one part for each partition.
        let settings = [("max_insert_block_size", "1048576".to_owned())];
        self.send(&settings, Some(&into), rows, WRITE_TIMEOUT, READ_MAX_BYTES).await?;
        Ok(())
    }

    /// Returns the rows of an internal query. `texts` are bound to `$1`, `$2` ….
    pub async fn fetch_rows<T: DeserializeOwned>(
        &self,
        sql: &str,
        texts: &[&str],
    ) -> std::result::Result<Vec<T>, ClickHouseError> {
        let sql = format!("{} FORMAT JSONCompact", bind_texts(sql, texts));
        let settings = query_settings(READ_TIMEOUT);
        let reply = self.send(&settings, None, sql, READ_TIMEOUT, READ_MAX_BYTES).await?;
        Ok(serde_json::from_slice::<JsonReply<T>>(&reply)?.data)
    }

    /// Returns the rows of a caller's query, each a JSON list of the values of the columns.
    pub async fn run_query(&self, query: &BoundQuery, limits: &QueryLimits) -> Result<Vec<String>> {
        let texts: Vec<&str> = query.parameters.iter().map(String::as_str).collect();
        let sql = format!("{} FORMAT JSONCompact", bind_texts(&query.sql, &texts));
        let mut settings = query_settings(limits.timeout).to_vec();
        settings.push(("max_memory_usage", limits.memory_max_bytes.to_string()));
        // Twice the limit of the result: the names and types of the columns come with it.
        let reply_max_bytes = limits.result_max_bytes.saturating_mul(2);
        // ClickHouse stops by itself; if it does not, the client does.
        let timeout = limits.timeout + Duration::from_secs(2);
        let turn = tokio::time::timeout(PERMIT_TIMEOUT, self.caller_query_permits.acquire()).await;
        let _turn = turn.map_err(|_| Error::StoreTimeout(PERMIT_TIMEOUT.as_secs()))?;
        let reply =
            self.send(&settings, None, sql, timeout, reply_max_bytes).await.map_err(query_error)?;
        let reply: JsonReply<Box<RawValue>> =
            serde_json::from_slice(&reply).map_err(|e| query_error(e.into()))?;
        let rows: Vec<String> = reply.data.iter().map(|row| row.get().to_owned()).collect();
        if rows.iter().map(String::len).sum::<usize>() > limits.result_max_bytes {
            return Err(query_error(ClickHouseError::ReplyTooLarge(limits.result_max_bytes)));
        }
        Ok(rows)
    }

    async fn send(
        &self,
        settings: &[(&str, String)],
        query: Option<&str>,
        body: String,
        timeout: Duration,
        reply_max_bytes: usize,
    ) -> std::result::Result<Bytes, ClickHouseError> {
        let mut request = self
            .http
            .post(self.url.clone())
            .basic_auth(&self.user, self.password.as_deref())
            .query(&[("database", &self.database)])
            .query(settings)
            .timeout(timeout);
        if let Some(query) = query {
            request = request.query(&[("query", query)]);
        }
        let mut response = request.body(body).send().await?;
        let status = response.status();
        let mut reply = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if reply.len() + chunk.len() > reply_max_bytes {
                return Err(ClickHouseError::ReplyTooLarge(reply_max_bytes));
            }
            reply.extend_from_slice(&chunk);
        }
        if status == StatusCode::OK {
            return Ok(reply.into());
        }
        let reply = String::from_utf8_lossy(&reply);
        Err(ClickHouseError::Rejected(error_code(&reply), reply.trim().chars().take(500).collect()))
    }
}

/// Returns the code in `Code: 62. DB::Exception: …`, or in `Code: 62, e.displayText() = …`.
fn error_code(message: &str) -> u32 {
    let rest = message.trim_start().strip_prefix("Code: ").unwrap_or_default();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_default()
}

/// Returns settings for complete replies, plain numbers and read-only access.
fn query_settings(time: Duration) -> [(&'static str, String); 8] {
    [
        ("readonly", "2".into()),
        ("wait_end_of_query", "1".into()),
        ("output_format_json_quote_64bit_integers", "0".into()),
        ("output_format_json_quote_denormals", "0".into()),
        ("join_use_nulls", "1".into()),
        ("max_execution_time", time.as_secs().max(1).to_string()),
        ("max_threads", "4".into()),
        // A list of ten thousand keys fits in.
        ("max_query_size", "4194304".into()),
    ]
}

/// Returns the query with `$1`, `$2` … replaced by the texts as quoted strings.
pub fn bind_texts(sql: &str, texts: &[&str]) -> String {
    let mut bound_sql = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once('$') {
        bound_sql.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let number = after[..digits].parse::<usize>().ok();
        match number.and_then(|number| texts.get(number.wrapping_sub(1))) {
            Some(text) => push_quoted(&mut bound_sql, text),
            None => {
                bound_sql.push('$');
                bound_sql.push_str(&after[..digits]);
            }
        }
        rest = &after[digits..];
    }
    bound_sql.push_str(rest);
    bound_sql
}

/// Appends a quoted string. In quotes, ClickHouse gives a special meaning to two characters: the quote itself and the
/// backslash.
fn push_quoted(sql: &mut String, text: &str) {
    sql.push('\'');
    for c in text.chars() {
        if matches!(c, '\'' | '\\') {
            sql.push('\\');
        }
        sql.push(c);
    }
    sql.push('\'');
}

/// Maps an error to the one that the author of the query sees.
fn query_error(error: ClickHouseError) -> Error {
    let (fault, message) = match &error {
        ClickHouseError::ReplyTooLarge(_) => (
            QueryErrorKind::Memory,
            "the result is too large; select fewer columns, or fewer rows with LIMIT",
        ),
        ClickHouseError::ConnectionLost(cause) if cause.is_timeout() => (
            QueryErrorKind::Timeout,
            "the query took too long; query a shorter period or fewer rows",
        ),
        ClickHouseError::Rejected(code, _) => match code {
            159 | 160 => (
                QueryErrorKind::Timeout,
                "the query took too long; query a shorter period or fewer rows",
            ),
            241 | 396 | 158 | 307 => (
                QueryErrorKind::Memory,
                "the query took too much memory; query a shorter period or fewer rows",
            ),
            125 => (
                QueryErrorKind::Invalid,
                "a query that is used as a value returned more than one row",
            ),
            // Syntax, a function, a setting: newer servers support all that this program writes.
            46 | 48 | 62 | 115 => {
                (QueryErrorKind::Invalid, "the version of ClickHouse is too old for this query")
            }
            // The tables are not created yet.
            60 | 81 => return Error::StoreNotReady,
            _ if error.is_outage() => return error.into(),
            _ => (QueryErrorKind::Invalid, "the database cannot run this query"),
        },
        ClickHouseError::Unreachable(_)
        | ClickHouseError::ConnectionLost(_)
        | ClickHouseError::InvalidReply(_) => {
            return error.into();
        }
    };
    tracing::debug!(cause = %error, "failed to run a query in ClickHouse");
    Error::AnalyticsQuery(fault, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_texts_escapes_texts_when_they_contain_quotes() {
        let sql = bind_texts("a = $1 AND b = $2 AND c ~ '^[0-9]$' AND d = $3", &["it's \\", "$1"]);

        assert_eq!(sql, r"a = 'it\'s \\' AND b = '$1' AND c ~ '^[0-9]$' AND d = $3");
    }

    #[test]
    fn error_code_is_parsed_when_version_is_old_or_new() {
        assert_eq!(error_code("Code: 62, e.displayText() = DB::Exception: Syntax error"), 62);
        assert_eq!(error_code("Code: 241. DB::Exception: Memory limit"), 241);
        assert_eq!(error_code("Bad gateway"), 0);
    }
}
