//! Implements the change feed: announcements in a bounded stream. A reader can resume it and detects when it cannot.

use std::sync::Arc;
use std::time::Duration;

use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline};

use super::RedisCounters;
use super::connections::{RetryPolicy, Script};
use super::errors::timeout_error;
use super::primary::moved_error;
use super::scripts::ScriptRunner;
use crate::Keyspace;

/// How long one read waits for new announcements. It bounds how late a reader detects that it reads the wrong feed.
const READ_WAIT: Duration = Duration::from_millis(500);
/// How much longer than the wait a reply may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum number of announcements in one read.
const ENTRIES_MAX: usize = 1_000;

/// Returns the script that appends to the feed.
pub fn announce_script() -> Script {
    Script::new(include_str!("../../../../lua/announce.lua").to_owned())
}

/// A position in the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedPosition {
    /// The era of the feed. Within one era, numbers are contiguous.
    pub era: String,
    /// The number of the last announcement that was read.
    last_number: u64,
}

impl FeedPosition {
    pub fn new(era: impl Into<String>, last_number: u64) -> Self {
        Self { era: era.into(), last_number }
    }
}

/// The result of reading the feed.
#[derive(Debug, PartialEq, Eq)]
pub enum FeedReadResult {
    Announcements {
        texts: Vec<String>,
        position: FeedPosition,
        /// Whether the end of the feed was reached.
        is_end: bool,
        /// How long ago each of the requested replicas last read the feed, if that was within a minute.
        reader_ages: Vec<Option<Duration>>,
    },
    /// Announcements were missed, or may have been: the feed was trimmed, lost, or belongs to another Redis.
    Gap,
}

/// The dedicated connection of a feed reader.
pub struct FeedConnection {
    transport: FeedTransport,
    script_runner: Arc<ScriptRunner>,
    feed_key: String,
    channel_name: String,
    keyspace: Keyspace,
}

enum FeedTransport {
    Server {
        connection: MultiplexedConnection,
        /// Of the server that it leads to.
        address: String,
    },
    Cluster(ClusterConnection),
}

/// The reply of `XREAD`: the name of each stream and its entries, each with its ID and fields.
type StreamsReply = Option<Vec<(String, Vec<(String, Vec<String>)>)>>;

impl RedisCounters {
    /// Appends to the feed, and publishes `older_text` to replicas of the version before the feed. Returns the era of
    /// the feed.
    pub async fn publish(&self, text: &str, older_text: Option<&str>) -> Result<String> {
        let (feed, channel) = (self.keyspace.feed(), self.keyspace.channel());
        let arguments = |command: &mut Cmd| {
            command.arg(1).arg(&feed).arg(text).arg(&channel).arg(older_text.unwrap_or_default());
        };
        let publishing = self.script_runner.connections.run_script(
            &self.announce_script,
            RetryPolicy::Once,
            arguments,
        );
        let (era, _): (String, String) = publishing.await?;
        Ok(era)
    }

    /// Connects a feed reader.
    pub async fn connect_feed(&self) -> Result<FeedConnection> {
        let (feed, channel) = (self.keyspace.feed(), self.keyspace.channel());
        let connecting = async {
            let transport = match self.script_runner.connections.finder() {
                None => {
                    let client =
                        self.address.cluster_client(REPLY_TIMEOUT, READ_WAIT + REPLY_TIMEOUT)?;
                    FeedTransport::Cluster(client.get_async_connection().await?)
                }
                Some(finder) => {
                    let config = AsyncConnectionConfig::new()
                        .set_connection_timeout(Some(REPLY_TIMEOUT))
                        .set_response_timeout(None);
                    let (connection, address) = finder.connect(&config).await?;
                    FeedTransport::Server { connection, address }
                }
            };
            let script_runner = self.script_runner.clone();
            let keyspace = self.keyspace.clone();
            Ok::<_, Error>(FeedConnection {
                transport,
                script_runner,
                feed_key: feed,
                channel_name: channel,
                keyspace,
            })
        };
        // Boxed because it is rare and large.
        with_timeout(REPLY_TIMEOUT, Box::pin(connecting)).await
    }
}

impl FeedConnection {
    /// Returns the end of the feed. Creates the feed if it does not exist.
    pub async fn get_or_create_end(&mut self) -> Result<FeedPosition> {
        let mut pipe = redis::pipe();
        let source = include_str!("../../../../lua/announce.lua");
        pipe.cmd("EVAL")
            .arg(source)
            .arg(1)
            .arg(&self.feed_key)
            .arg("")
            .arg(&self.channel_name)
            .arg("");
        let ((era, number),): ((String, u64),) =
            with_timeout(REPLY_TIMEOUT, self.send(&pipe)).await?;
        Ok(FeedPosition::new(era, number))
    }

    /// Reads what was announced after `from`, and waits for up to [`READ_WAIT`] if there is nothing yet. The pair holds
    /// this replica and the replicas whose last read is requested. `is_known` says whether this replica records that it
    /// reads the feed.
    pub async fn read(
        &mut self,
        from: &FeedPosition,
        (replica, others): (&str, &[String]),
        is_known: bool,
    ) -> Result<FeedReadResult> {
        let mut pipe = redis::pipe();
        pipe.cmd("XREAD").arg("COUNT").arg(ENTRIES_MAX).arg("BLOCK").arg(READ_WAIT.as_millis());
        pipe.arg("STREAMS").arg(&self.feed_key).arg(format!("{}-0", from.last_number));
        // It runs after the read on the same connection, so on the same Redis, and what it returns was true during the
        // read.
        pipe.cmd("EVAL").arg(include_str!("../../../../lua/feed.lua")).arg(others.len() + 2);
        pipe.arg(&self.feed_key).arg(self.keyspace.reader(replica));
        for other in others {
            pipe.arg(self.keyspace.reader(other));
        }
        pipe.arg(u8::from(is_known));
        let (streams, (era, ages)): (StreamsReply, (String, Vec<i64>)) =
            with_timeout(READ_WAIT + REPLY_TIMEOUT, self.send(&pipe)).await?;
        let entries = streams.into_iter().flatten().flat_map(|(_, entries)| entries).collect();
        let age = |ms: &i64| u64::try_from(*ms).ok().map(Duration::from_millis);
        Ok(check_entries(from, entries, &era, ages.iter().map(age).collect()))
    }

    /// Sends commands, unless Sentinel has named another server in the meantime: what others announce is there.
    async fn send<T: FromRedisValue>(&mut self, pipe: &Pipeline) -> Result<T> {
        let finder = self.script_runner.connections.finder();
        Ok(match &mut self.transport {
            FeedTransport::Server { address, .. }
                if finder.is_some_and(|finder| finder.has_moved_from(address)) =>
            {
                return Err(moved_error());
            }
            FeedTransport::Server { connection, .. } => query_pipeline(connection, pipe).await?,
            FeedTransport::Cluster(connection) => {
                Box::pin(query_pipeline(connection, pipe)).await?
            }
        })
    }
}

async fn query_pipeline<T: FromRedisValue>(
    connection: &mut impl ConnectionLike,
    pipe: &Pipeline,
) -> redis::RedisResult<T> {
    pipe.query_async(connection).await
}

async fn with_timeout<T>(timeout: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(timeout, call).await.unwrap_or_else(|_| Err(timeout_error(timeout)))
}

/// Checks the entries of a stream for a reader that has read up to `from`, given the current era of the feed. An entry is
/// its ID and its fields: the name and value of the era, the name and value of the text.
pub fn check_entries(
    from: &FeedPosition,
    entries: Vec<(String, Vec<String>)>,
    era: &str,
    ages: Vec<Option<Duration>>,
) -> FeedReadResult {
    let is_all = entries.len() < ENTRIES_MAX;
    let mut to = from.clone();
    let mut texts = Vec::with_capacity(entries.len());
    for (id, fields) in entries {
        let number = id.split_once('-').and_then(|(number, _)| number.parse::<u64>().ok());
        let [_, entry_era, _, text] = <[String; 4]>::try_from(fields).unwrap_or_default();
        let follows = number == Some(to.last_number + 1) && entry_era == to.era;
        if !follows && !Safeguard::Gap.is_disabled() {
            return FeedReadResult::Gap;
        }
        to.last_number = number.unwrap_or(to.last_number);
        texts.push(text);
    }
    if era != to.era && !Safeguard::Gap.is_disabled() {
        return FeedReadResult::Gap;
    }
    FeedReadResult::Announcements { texts, position: to, is_end: is_all, reader_ages: ages }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(number: u64) -> FeedPosition {
        FeedPosition::new("a:1", number)
    }

    fn entry(number: u64, era: &str) -> (String, Vec<String>) {
        let fields = ["era", era, "text", &format!("text {number}")];
        (format!("{number}-0"), fields.map(str::to_owned).to_vec())
    }

    #[test]
    fn entries_are_returned_when_contiguous() {
        let found =
            check_entries(&position(7), vec![entry(8, "a:1"), entry(9, "a:1")], "a:1", Vec::new());

        let texts = vec!["text 8".to_owned(), "text 9".to_owned()];
        assert_eq!(
            found,
            FeedReadResult::Announcements {
                texts,
                position: position(9),
                is_end: true,
                reader_ages: Vec::new()
            }
        );
        let nothing = FeedReadResult::Announcements {
            texts: Vec::new(),
            position: position(7),
            is_end: true,
            reader_ages: Vec::new(),
        };
        assert_eq!(check_entries(&position(7), Vec::new(), "a:1", Vec::new()), nothing);
    }

    #[test]
    fn gap_is_detected_when_entries_are_not_contiguous() {
        let trimmed = vec![entry(9, "a:1")];
        let of_another_redis = vec![entry(8, "b:1")];

        assert_eq!(check_entries(&position(7), trimmed, "a:1", Vec::new()), FeedReadResult::Gap);
        assert_eq!(
            check_entries(&position(7), of_another_redis, "b:1", Vec::new()),
            FeedReadResult::Gap
        );
        assert_eq!(check_entries(&position(7), Vec::new(), "b:1", Vec::new()), FeedReadResult::Gap);
        assert_eq!(check_entries(&position(7), Vec::new(), "", Vec::new()), FeedReadResult::Gap);
    }

    #[test]
    fn gap_is_detected_when_an_entry_belongs_to_another_era_than_the_feed() {
        let found = check_entries(&position(7), vec![entry(8, "b:1")], "a:1", Vec::new());

        assert_eq!(found, FeedReadResult::Gap);
    }

    #[test]
    fn end_is_not_reached_when_a_read_returns_its_maximum_of_entries() {
        for (entry_count, is_end_expected) in [(ENTRIES_MAX - 1, true), (ENTRIES_MAX, false)] {
            let entries = (1..).take(entry_count).map(|number| entry(number, "a:1")).collect();

            let found = check_entries(&position(0), entries, "a:1", Vec::new());

            let FeedReadResult::Announcements { texts, is_end, .. } = found else {
                panic!("a gap in {entry_count} entries");
            };
            assert_eq!((texts.len(), is_end), (entry_count, is_end_expected));
        }
    }
}
