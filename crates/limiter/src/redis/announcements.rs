//! Implements the change feed: announcements in a bounded stream. A reader can resume it and detects when it cannot.

use std::time::Duration;

use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline};

use super::connections::{RetryPolicy, Script, timed_out};
use super::{Address, RedisCounters};
use crate::Keyspace;

/// How long one read waits for new announcements. It bounds how late a reader detects that it reads the wrong feed.
const READ_WAIT: Duration = Duration::from_millis(500);
/// How much longer than the wait a reply may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The maximum number of announcements in one read.
const ENTRIES_MAX: usize = 1_000;

/// Returns the script that appends to the feed.
pub fn script() -> Script {
    Script::new(include_str!("../../../../lua/announce.lua").to_owned())
}

/// A position in the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The era of the feed. Within one era, numbers are contiguous.
    pub era: String,
    /// The number of the last announcement that was read.
    number: u64,
}

/// The result of reading the feed.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    News {
        texts: Vec<String>,
        to: Position,
        /// Whether the end of the feed was reached.
        is_all: bool,
        /// How long ago each of the requested replicas last read the feed, if that was within a minute.
        ages: Vec<Option<Duration>>,
    },
    /// Announcements were missed, or may have been: the feed was trimmed, lost, or belongs to another Redis.
    Gap,
}

/// The dedicated connection of a feed reader.
pub struct FeedConnection {
    link: Link,
    feed: String,
    channel: String,
    keyspace: Keyspace,
}

enum Link {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// The reply of `XREAD`: the name of each stream and its entries, each with its ID and fields.
type Streams = Option<Vec<(String, Vec<(String, Vec<String>)>)>>;

impl RedisCounters {
    /// Appends to the feed, and publishes `older_text` to replicas of the version before the feed. Returns the era of
    /// the feed.
    pub async fn publish(&self, text: &str, older_text: Option<&str>) -> Result<String> {
        let (feed, channel) = (self.keyspace.feed(), self.keyspace.channel());
        let arguments = |command: &mut Cmd| {
            command.arg(1).arg(&feed).arg(text).arg(&channel).arg(older_text.unwrap_or_default());
        };
        let publishing = self.calls.lanes.run(&self.announce, RetryPolicy::Once, arguments);
        let (era, _): (String, String) = publishing.await?;
        Ok(era)
    }

    /// Connects a feed reader.
    pub async fn read_feed(&self) -> Result<FeedConnection> {
        let (feed, channel) = (self.keyspace.feed(), self.keyspace.channel());
        let connecting = async {
            let link = match &self.address {
                Address::One(url) => {
                    let config = AsyncConnectionConfig::new()
                        .set_connection_timeout(Some(PATIENCE))
                        .set_response_timeout(None);
                    let client = redis::Client::open(url.as_str())?;
                    Link::One(client.get_multiplexed_async_connection_with_config(&config).await?)
                }
                Address::Cluster(urls) => {
                    let client = ClusterClient::builder(urls.iter().map(String::as_str))
                        .connection_timeout(PATIENCE)
                        .response_timeout(READ_WAIT + PATIENCE)
                        .retries(0)
                        .build()?;
                    Link::Cluster(client.get_async_connection().await?)
                }
            };
            let keyspace = self.keyspace.clone();
            Ok::<_, Error>(FeedConnection { link, feed, channel, keyspace })
        };
        // Boxed because it is rare and large.
        within(PATIENCE, Box::pin(connecting)).await
    }
}

impl FeedConnection {
    /// Returns the end of the feed. Creates the feed if it does not exist.
    pub async fn end(&mut self) -> Result<Position> {
        let mut pipe = redis::pipe();
        let source = include_str!("../../../../lua/announce.lua");
        pipe.cmd("EVAL").arg(source).arg(1).arg(&self.feed).arg("").arg(&self.channel).arg("");
        let ((era, number),): ((String, u64),) = within(PATIENCE, self.send(&pipe)).await?;
        Ok(Position { era, number })
    }

    /// Reads what was announced after `from`, and waits for up to [`READ_WAIT`] if there is nothing yet. The pair holds
    /// this replica and the replicas whose last read is requested. `is_known` says whether this replica records that it
    /// reads the feed.
    pub async fn read(
        &mut self,
        from: &Position,
        (replica, others): (&str, &[String]),
        is_known: bool,
    ) -> Result<Found> {
        let mut pipe = redis::pipe();
        pipe.cmd("XREAD").arg("COUNT").arg(ENTRIES_MAX).arg("BLOCK").arg(READ_WAIT.as_millis());
        pipe.arg("STREAMS").arg(&self.feed).arg(format!("{}-0", from.number));
        // It runs after the read on the same connection, so on the same Redis, and what it returns was true during the
        // read.
        pipe.cmd("EVAL").arg(include_str!("../../../../lua/feed.lua")).arg(others.len() + 2);
        pipe.arg(&self.feed).arg(self.keyspace.reader(replica));
        for other in others {
            pipe.arg(self.keyspace.reader(other));
        }
        pipe.arg(u8::from(is_known));
        let (streams, (era, ages)): (Streams, (String, Vec<i64>)) =
            within(READ_WAIT + PATIENCE, self.send(&pipe)).await?;
        let entries = streams.into_iter().flatten().flat_map(|(_, entries)| entries).collect();
        let age = |ms: &i64| u64::try_from(*ms).ok().map(Duration::from_millis);
        Ok(continued(from, entries, &era, ages.iter().map(age).collect()))
    }

    async fn send<T: FromRedisValue>(&mut self, pipe: &Pipeline) -> Result<T> {
        Ok(match &mut self.link {
            Link::One(connection) => ask(connection, pipe).await?,
            Link::Cluster(connection) => Box::pin(ask(connection, pipe)).await?,
        })
    }
}

async fn ask<T: FromRedisValue>(
    connection: &mut impl ConnectionLike,
    pipe: &Pipeline,
) -> redis::RedisResult<T> {
    pipe.query_async(connection).await
}

async fn within<T>(timeout: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(timeout, call).await.unwrap_or_else(|_| Err(timed_out(timeout)))
}

/// Checks the entries of a stream for a reader that has read up to `from`, given the current era of the feed.
fn continued(
    from: &Position,
    entries: Vec<(String, Vec<String>)>,
    era: &str,
    ages: Vec<Option<Duration>>,
) -> Found {
    let is_all = entries.len() < ENTRIES_MAX;
    let mut to = from.clone();
    let mut texts = Vec::with_capacity(entries.len());
    for (id, fields) in entries {
        let number = id.split_once('-').and_then(|(number, _)| number.parse::<u64>().ok());
        let [_, entry_era, _, text] = <[String; 4]>::try_from(fields).unwrap_or_default();
        let follows = number == Some(to.number + 1) && entry_era == to.era;
        if !follows && !Safeguard::Gap.is_disabled() {
            return Found::Gap;
        }
        to.number = number.unwrap_or(to.number);
        texts.push(text);
    }
    if era != to.era && !Safeguard::Gap.is_disabled() {
        return Found::Gap;
    }
    Found::News { texts, to, is_all, ages }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(number: u64) -> Position {
        Position { era: "a:1".into(), number }
    }

    fn entry(number: u64, era: &str) -> (String, Vec<String>) {
        let fields = ["era", era, "text", &format!("text {number}")];
        (format!("{number}-0"), fields.map(str::to_owned).to_vec())
    }

    #[test]
    fn entries_are_returned_when_contiguous() {
        let found =
            continued(&position(7), vec![entry(8, "a:1"), entry(9, "a:1")], "a:1", Vec::new());

        let texts = vec!["text 8".to_owned(), "text 9".to_owned()];
        assert_eq!(found, Found::News { texts, to: position(9), is_all: true, ages: Vec::new() });
        let nothing =
            Found::News { texts: Vec::new(), to: position(7), is_all: true, ages: Vec::new() };
        assert_eq!(continued(&position(7), Vec::new(), "a:1", Vec::new()), nothing);
    }

    #[test]
    fn gap_is_detected_when_entries_are_not_contiguous() {
        let trimmed = vec![entry(9, "a:1")];
        let of_another_redis = vec![entry(8, "b:1")];

        assert_eq!(continued(&position(7), trimmed, "a:1", Vec::new()), Found::Gap);
        assert_eq!(continued(&position(7), of_another_redis, "b:1", Vec::new()), Found::Gap);
        assert_eq!(continued(&position(7), Vec::new(), "b:1", Vec::new()), Found::Gap);
        assert_eq!(continued(&position(7), Vec::new(), "", Vec::new()), Found::Gap);
    }
}
