//! ClickHouse, where events go and where questions about them run when there is one: its tables, and how it is asked.
//!
//! It is spoken to over HTTP, in words that every version since 18.16 knows. A value of somebody else gets into a query
//! in one way only: [`bound`] writes it as a text between quotes.

mod days;
mod recent;
mod rollups;
mod source;
mod tables;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foundation::error::{Error, QueryFault, Result};
use foundation::model::{BoundQuery, DeliverySnapshot};
use reqwest::{Client, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use thiserror::Error as ThisError;
use tokio::sync::Semaphore;
use url::Url;

use super::analytics_query::QueryLimits;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer to one of our own questions may take.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a change may take. A delivery is two, and has its batches in hand for longer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a table of a day may take to be summed up. There are two, and the day is in hand for longer.
const DAY_TIMEOUT: Duration = Duration::from_mins(10);
/// How many questions of others run at once, and how long one waits for its turn.
const QUESTIONS_MAX: usize = 4;
const TURN_TIMEOUT: Duration = Duration::from_secs(3);
/// The largest answer to one of our own questions.
const READ_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Why ClickHouse did not do what it was told.
#[derive(Debug, ThisError)]
pub enum ClickHouseError {
    /// Nothing has reached it.
    #[error("it cannot be reached: {0}")]
    Away(#[source] reqwest::Error),
    /// Whether it did it nobody knows.
    #[error("the connection broke: {0}")]
    Broken(#[source] reqwest::Error),
    #[error("it answers with more than {0} bytes")]
    TooLarge(usize),
    /// Its number for what is wrong, and its words.
    #[error("it refuses: {1}")]
    Refused(u32, String),
    #[error("its answer cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
}

impl From<ClickHouseError> for Error {
    fn from(failed: ClickHouseError) -> Self {
        match failed.is_outage() {
            true => Self::ClickHouseAway(failed.to_string()),
            false => Self::ClickHouse(failed.to_string()),
        }
    }
}

impl From<reqwest::Error> for ClickHouseError {
    fn from(error: reqwest::Error) -> Self {
        // The address may hold a password.
        let error = error.without_url();
        if error.is_connect() { Self::Away(error) } else { Self::Broken(error) }
    }
}

impl ClickHouseError {
    /// Whether it is ClickHouse that is away, and not what it was asked that is wrong.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Away(_) | Self::Broken(_) => true,
            // Too many queries at once; a user it does not know, or no longer; it is shutting down; it is read-only.
            Self::Refused(code, _) => [202, 192, 193, 194, 516, 236, 242, 164].contains(code),
            Self::TooLarge(_) | Self::Unreadable(_) => false,
        }
    }
}

/// A database of a ClickHouse server.
#[derive(Debug, Clone)]
pub struct ClickHouse {
    http: Client,
    /// Without the name, the password and the database.
    url: Url,
    user: String,
    password: Option<String>,
    database: String,
    /// One for each question of somebody else that may run.
    turns: Arc<Semaphore>,
}

/// What reads the events that had arrived at one moment.
pub struct Reader {
    clickhouse: ClickHouse,
    delivered: DeliverySnapshot,
}

/// An answer as its format `JSONCompact` has it.
#[derive(serde::Deserialize)]
struct Answer<T> {
    data: Vec<T>,
}

impl ClickHouse {
    /// At `http://user:password@host:8123/database`, or over https. Nothing is asked yet.
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
            .use_rustls_tls()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("keyward/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| Error::Internal(format!("no client of ClickHouse: {e}")))?;
        Ok(Self {
            http,
            url: bare,
            user: if user.is_empty() { "default".into() } else { user },
            password,
            database: if database.is_empty() { "default".into() } else { database },
            turns: Arc::new(Semaphore::new(QUESTIONS_MAX)),
        })
    }

    pub fn reader(&self, delivered: DeliverySnapshot) -> Reader {
        Reader { clickhouse: self.clone(), delivered }
    }

    pub async fn version(&self) -> std::result::Result<String, ClickHouseError> {
        let rows: Vec<(String,)> = self.rows("SELECT version()", &[]).await?;
        Ok(rows.into_iter().map(|(version,)| version).collect())
    }

    /// Runs a statement that changes something.
    pub async fn run(&self, sql: &str) -> std::result::Result<(), ClickHouseError> {
        self.run_for(sql, WRITE_TIMEOUT).await
    }

    async fn run_for(
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
        // In one piece, and so in one part for each partition.
        let settings = [("max_insert_block_size", "1048576".to_owned())];
        self.send(&settings, Some(&into), rows, WRITE_TIMEOUT, READ_MAX_BYTES).await?;
        Ok(())
    }

    /// The rows of one of our own questions; `texts` are bound to `$1`, `$2` ….
    pub async fn rows<T: DeserializeOwned>(
        &self,
        sql: &str,
        texts: &[&str],
    ) -> std::result::Result<Vec<T>, ClickHouseError> {
        let sql = format!("{} FORMAT JSONCompact", bound(sql, texts));
        let settings = question_settings(READ_TIMEOUT);
        let answer = self.send(&settings, None, sql, READ_TIMEOUT, READ_MAX_BYTES).await?;
        Ok(serde_json::from_slice::<Answer<T>>(&answer)?.data)
    }

    /// The rows of somebody's question, each a JSON list of the columns' values.
    pub async fn ask(&self, query: &BoundQuery, bounds: &QueryLimits) -> Result<Vec<String>> {
        let texts: Vec<&str> = query.texts.iter().map(String::as_str).collect();
        let sql = format!("{} FORMAT JSONCompact", bound(&query.sql, &texts));
        let mut settings = question_settings(bounds.time).to_vec();
        settings.push(("max_memory_usage", bounds.memory_max_bytes.to_string()));
        // Twice what is passed on: the names and types of the columns come with it.
        let most = bounds.answer_max_bytes.saturating_mul(2);
        // ClickHouse stops by itself; where it does not hear, we do.
        let timeout = bounds.time + Duration::from_secs(2);
        let turn = tokio::time::timeout(TURN_TIMEOUT, self.turns.acquire()).await;
        let _turn = turn.map_err(|_| Error::StoreTimeout(TURN_TIMEOUT.as_secs()))?;
        let answer = self.send(&settings, None, sql, timeout, most).await.map_err(query_error)?;
        let answer: Answer<Box<RawValue>> =
            serde_json::from_slice(&answer).map_err(|e| query_error(e.into()))?;
        let rows: Vec<String> = answer.data.iter().map(|row| row.get().to_owned()).collect();
        if rows.iter().map(String::len).sum::<usize>() > bounds.answer_max_bytes {
            return Err(query_error(ClickHouseError::TooLarge(bounds.answer_max_bytes)));
        }
        Ok(rows)
    }

    async fn send(
        &self,
        settings: &[(&str, String)],
        query: Option<&str>,
        body: String,
        timeout: Duration,
        answer_max_bytes: usize,
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
        let mut answer = request.body(body).send().await?;
        let status = answer.status();
        let mut told = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            if told.len() + chunk.len() > answer_max_bytes {
                return Err(ClickHouseError::TooLarge(answer_max_bytes));
            }
            told.extend_from_slice(&chunk);
        }
        if status == StatusCode::OK {
            return Ok(told.into());
        }
        let told = String::from_utf8_lossy(&told);
        Err(ClickHouseError::Refused(code(&told), told.trim().chars().take(500).collect()))
    }
}

/// The number that stands in `Code: 62. DB::Exception: …`, or in `Code: 62, e.displayText() = …`.
fn code(told: &str) -> u32 {
    let rest = told.trim_start().strip_prefix("Code: ").unwrap_or_default();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_default()
}

/// Whole answers or none, numbers as numbers, and nothing that changes anything.
fn question_settings(time: Duration) -> [(&'static str, String); 8] {
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

/// The query with `$1`, `$2` … replaced by the texts, between quotes.
pub fn bound(sql: &str, texts: &[&str]) -> String {
    let mut whole = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once('$') {
        whole.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let number = after[..digits].parse::<usize>().ok();
        match number.and_then(|number| texts.get(number.wrapping_sub(1))) {
            Some(text) => quote(&mut whole, text),
            None => {
                whole.push('$');
                whole.push_str(&after[..digits]);
            }
        }
        rest = &after[digits..];
    }
    whole.push_str(rest);
    whole
}

/// Two characters mean something between the quotes of ClickHouse: the quote itself and the backslash.
fn quote(sql: &mut String, text: &str) {
    sql.push('\'');
    for c in text.chars() {
        if matches!(c, '\'' | '\\') {
            sql.push('\\');
        }
        sql.push(c);
    }
    sql.push('\'');
}

/// What the author of a question is told.
fn query_error(failed: ClickHouseError) -> Error {
    let (fault, message) = match &failed {
        ClickHouseError::TooLarge(_) => (
            QueryFault::Memory,
            "the answer is too large: select fewer columns, or fewer rows with LIMIT",
        ),
        ClickHouseError::Broken(cause) if cause.is_timeout() => {
            (QueryFault::Timeout, "the query took too long: ask for less time or fewer rows")
        }
        ClickHouseError::Refused(code, _) => match code {
            159 | 160 => {
                (QueryFault::Timeout, "the query took too long: ask for less time or fewer rows")
            }
            241 | 396 | 158 | 307 => {
                (QueryFault::Memory, "the query took too much memory: ask for less at once")
            }
            125 => (QueryFault::Invalid, "a query that stands for a value gave more than one row"),
            // Syntax, a function, a setting: what this program writes is known to newer servers.
            46 | 48 | 62 | 115 => {
                (QueryFault::Invalid, "the ClickHouse behind this server is too old for this query")
            }
            // The tables are yet to be made.
            60 | 81 => return Error::StoreNotReady,
            _ if failed.is_outage() => return failed.into(),
            _ => (QueryFault::Invalid, "the database cannot run this query"),
        },
        ClickHouseError::Away(_) | ClickHouseError::Broken(_) | ClickHouseError::Unreadable(_) => {
            return failed.into();
        }
    };
    tracing::debug!(cause = %failed, "ClickHouse did not answer a question");
    Error::AnalyticsQuery(fault, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_written_between_quotes_that_it_cannot_close() {
        let sql = bound("a = $1 AND b = $2 AND c ~ '^[0-9]$' AND d = $3", &["it's \\", "$1"]);

        assert_eq!(sql, r"a = 'it\'s \\' AND b = '$1' AND c ~ '^[0-9]$' AND d = $3");
    }

    #[test]
    fn the_number_of_a_refusal_is_read_in_the_words_of_every_version() {
        assert_eq!(code("Code: 62, e.displayText() = DB::Exception: Syntax error"), 62);
        assert_eq!(code("Code: 241. DB::Exception: Memory limit"), 241);
        assert_eq!(code("Bad gateway"), 0);
    }
}
