//! The change feed: announcements in a bounded stream, which a reader can resume and knows when it cannot.

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

/// How long a reader waits for news at a time: so late at most it finds out that it looks in the wrong place.
const WAIT: Duration = Duration::from_millis(500);
/// How much longer than that an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many announcements are read at once.
const ENTRIES_MAX: usize = 1_000;

/// What appends to the feed.
pub fn script() -> Script {
    Script::new(include_str!("../../../../lua/announce.lua").to_owned())
}

/// A place in the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Within one era, numbers are contiguous.
    pub era: String,
    /// Of the last announcement that was read.
    number: u64,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    News {
        texts: Vec<String>,
        to: Position,
        /// Whether these were all that there were.
        is_all: bool,
        /// How long ago each of the other replicas that were asked about last read the feed, if it did within a minute.
        ages: Vec<Option<Duration>>,
    },
    /// Some were missed, or may have been: the feed was trimmed, lost, or is that of another Redis.
    Gap,
}

/// A connection of a reader's own.
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

/// A stream, as it is read: its name, and entries, each with its id and its fields.
type Streams = Option<Vec<(String, Vec<(String, Vec<String>)>)>>;

impl RedisCounters {
    /// Appends to the feed, and tells replicas of the version before this `older_text`. The era of the feed.
    pub async fn publish(&self, text: &str, older_text: Option<&str>) -> Result<String> {
        let (feed, channel) = (self.keyspace.feed(), self.keyspace.channel());
        let arguments = |command: &mut Cmd| {
            command.arg(1).arg(&feed).arg(text).arg(&channel).arg(older_text.unwrap_or_default());
        };
        let announcing = self.calls.lanes.run(&self.announce, RetryPolicy::Once, arguments);
        let (era, _): (String, String) = announcing.await?;
        Ok(era)
    }

    /// Connects a reader.
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
                        .response_timeout(WAIT + PATIENCE)
                        .retries(0)
                        .build()?;
                    Link::Cluster(client.get_async_connection().await?)
                }
            };
            let keyspace = self.keyspace.clone();
            Ok::<_, Error>(FeedConnection { link, feed, channel, keyspace })
        };
        // Boxed: it is rare, and large.
        within(PATIENCE, Box::pin(connecting)).await
    }
}

impl FeedConnection {
    /// Where the feed ends; begins one where there is none.
    pub async fn end(&mut self) -> Result<Position> {
        let mut pipe = redis::pipe();
        let source = include_str!("../../../../lua/announce.lua");
        pipe.cmd("EVAL").arg(source).arg(1).arg(&self.feed).arg("").arg(&self.channel).arg("");
        let ((era, number),): ((String, u64),) = within(PATIENCE, self.send(&pipe)).await?;
        Ok(Position { era, number })
    }

    /// What has been announced after `from`; waits for it for a while. `readers`: this replica, and the others that it asks
    /// about. `is_known`: whether this replica tells others that it reads the feed.
    pub async fn read(
        &mut self,
        from: &Position,
        (replica, others): (&str, &[String]),
        is_known: bool,
    ) -> Result<Found> {
        let mut pipe = redis::pipe();
        pipe.cmd("XREAD").arg("COUNT").arg(ENTRIES_MAX).arg("BLOCK").arg(WAIT.as_millis());
        pipe.arg("STREAMS").arg(&self.feed).arg(format!("{}-0", from.number));
        // After it, on the same connection: so it is the same Redis, and what it tells was true meanwhile.
        pipe.cmd("EVAL").arg(include_str!("../../../../lua/feed.lua")).arg(others.len() + 2);
        pipe.arg(&self.feed).arg(self.keyspace.reader(replica));
        for other in others {
            pipe.arg(self.keyspace.reader(other));
        }
        pipe.arg(u8::from(is_known));
        let (streams, (era, ages)): (Streams, (String, Vec<i64>)) =
            within(WAIT + PATIENCE, self.send(&pipe)).await?;
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

async fn within<T>(patience: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(patience, call).await.unwrap_or_else(|_| Err(timed_out(patience)))
}

/// What these entries of a stream are to a reader that has read up to `from`, where the feed is in this era.
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
    fn what_follows_without_a_gap_is_news() {
        let found =
            continued(&position(7), vec![entry(8, "a:1"), entry(9, "a:1")], "a:1", Vec::new());

        let texts = vec!["text 8".to_owned(), "text 9".to_owned()];
        assert_eq!(found, Found::News { texts, to: position(9), is_all: true, ages: Vec::new() });
        let nothing =
            Found::News { texts: Vec::new(), to: position(7), is_all: true, ages: Vec::new() };
        assert_eq!(continued(&position(7), Vec::new(), "a:1", Vec::new()), nothing);
    }

    #[test]
    fn what_does_not_follow_is_a_gap() {
        let trimmed = vec![entry(9, "a:1")];
        let of_another_redis = vec![entry(8, "b:1")];

        assert_eq!(continued(&position(7), trimmed, "a:1", Vec::new()), Found::Gap);
        assert_eq!(continued(&position(7), of_another_redis, "b:1", Vec::new()), Found::Gap);
        assert_eq!(continued(&position(7), Vec::new(), "b:1", Vec::new()), Found::Gap);
        assert_eq!(continued(&position(7), Vec::new(), "", Vec::new()), Found::Gap);
    }
}
