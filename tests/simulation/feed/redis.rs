//! A model of Redis servers and the stream of announcements, as `lua/announce.lua` and `lua/feed.lua` define it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use limiter::redis::{FeedPosition, FeedReadResult, check_entries};
use tokio::sync::Notify;

use crate::executor::{Node, lock};
use crate::network::{Lost, Network, Servers};

/// The node of the first server. Each failover or restart adds another one.
pub const REDIS: Node = 200;
const READ_WAIT: Duration = Duration::from_millis(500);
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// The time in which a reader counts as present.
const READER_TTL_US: u64 = 60_000_000;

/// A Redis server between two restarts or failovers.
#[derive(Default)]
pub struct RedisServer {
    generation: usize,
    is_demoted: bool,
    entries: Vec<Entry>,
    /// When each replica last read the feed.
    readers: BTreeMap<String, u64>,
    announced: Arc<Notify>,
}

#[derive(Debug, Clone)]
struct Entry {
    number: u64,
    era: String,
    text: String,
}

impl RedisServer {
    fn has_era_of_this(&self, era: &str) -> bool {
        era.split_once(':').is_some_and(|(of, _)| of == self.generation.to_string())
    }

    /// Appends an announcement, if there is one. Returns the era and the number of the last entry.
    fn announce(&mut self, text: &str, now_us: u64) -> (String, u64) {
        let (mut number, mut era) = match self.entries.last() {
            Some(last) => (last.number, last.era.clone()),
            None => (0, String::new()),
        };
        let is_new = !self.has_era_of_this(&era);
        if is_new {
            number = number.max(1_000_000 + now_us);
            era = format!("{}:{number}", self.generation);
        }
        if is_new || !text.is_empty() {
            number += 1;
            self.entries.push(Entry { number, era: era.clone(), text: text.to_owned() });
            self.announced.notify_waiters();
        }
        (era, number)
    }

    fn read(&self, from: u64) -> Vec<(String, Vec<String>)> {
        let fields = |entry: &Entry| {
            let Entry { era, text, .. } = entry.clone();
            vec!["era".to_owned(), era, "text".to_owned(), text]
        };
        let new = self.entries.iter().filter(|entry| entry.number > from);
        new.map(|entry| (format!("{}-0", entry.number), fields(entry))).collect()
    }

    /// Returns the era, and how long ago others read the feed.
    fn era_and_ages(
        &mut self,
        replica: &str,
        others: &[String],
        is_known: bool,
        now_us: u64,
    ) -> (String, Vec<Option<Duration>>) {
        let era = self.entries.last().map(|last| last.era.clone()).unwrap_or_default();
        if self.is_demoted || !self.has_era_of_this(&era) {
            return (String::new(), Vec::new());
        }
        if is_known {
            self.readers.insert(replica.to_owned(), now_us);
        }
        let age = |other| {
            let read_us = self.readers.get(other)?;
            Some(now_us - read_us).filter(|age| *age < READER_TTL_US).map(Duration::from_micros)
        };
        (era, others.iter().map(age).collect())
    }
}

pub type RedisServers = Servers<RedisServer>;

impl Servers<RedisServer> {
    pub fn new() -> Self {
        Self::from_first(RedisServer::default())
    }

    /// Starts a server that has lost the last announcements, and returns its number. Without `copied`, it has lost all.
    pub fn start(&mut self, copied: Option<usize>) -> usize {
        let generation = self.all.len();
        let mut server = RedisServer { generation, ..RedisServer::default() };
        if let (Some(lost), Some(last)) = (copied, self.all.last()) {
            let kept = last.entries.len().saturating_sub(lost);
            server.entries = last.entries[..kept].to_vec();
            server.readers = last.readers.clone();
        }
        self.all.push(server);
        generation
    }

    /// Lets all servers but the last one know that they are no master.
    pub fn demote_others(&mut self) {
        let last = self.all.len() - 1;
        self.all[..last].iter_mut().for_each(|server| server.is_demoted = true);
    }

    /// Removes all announcements but the last.
    pub fn trim(&mut self) {
        for server in &mut self.all {
            let trimmed = server.entries.len().saturating_sub(1);
            server.entries.drain(..trimmed);
        }
    }
}

/// A client of Redis.
#[derive(Clone)]
pub struct RedisClient {
    pub network: Network,
    pub node: Node,
    pub servers: Arc<Mutex<RedisServers>>,
}

impl RedisClient {
    async fn call<T: Send + 'static>(
        &self,
        script: impl FnOnce(&mut RedisServer, u64) -> T + Send + 'static,
    ) -> Result<T, Lost> {
        let (servers, node, sim) = (self.servers.clone(), self.node, self.network.sim.clone());
        let operation = async move {
            let now_us = sim.now_us();
            script(lock(&servers).server_of(node), now_us)
        };
        self.network.call(self.node, REDIS, operation).await
    }

    /// Announces a text. Returns the era. A call whose reply is lost with its connection is sent again.
    pub async fn publish(&self, text: String, timeout: Duration) -> Result<String, Lost> {
        let publish = async {
            for _ in 0..2 {
                let text = text.clone();
                let announced = self.call(move |server, now_us| server.announce(&text, now_us));
                if let Ok((era, _)) = announced.await {
                    return Ok(era);
                }
            }
            Err(Lost)
        };
        self.network.sim.timeout(timeout, publish).await.unwrap_or(Err(Lost))
    }

    /// Returns the end of the feed, and the number of its last entry.
    pub async fn find_end(&self) -> Result<(FeedPosition, u64), Lost> {
        let end = self.call(|server, now_us| server.announce("", now_us));
        let end = self.network.sim.timeout(REPLY_TIMEOUT, end).await.unwrap_or(Err(Lost));
        end.map(|(era, number)| (FeedPosition::new(era, number), number))
    }

    /// Reads what was announced after a position, and waits for up to half a second if there is nothing.
    pub async fn read(
        &self,
        (from, number): (FeedPosition, u64),
        (replica, others): (String, Vec<String>),
        is_known: bool,
    ) -> Result<(FeedReadResult, u64), Lost> {
        let (servers, node, sim) = (self.servers.clone(), self.node, self.network.sim.clone());
        let read = async move {
            let (mut entries, announced) = {
                let mut servers = lock(&servers);
                let server = servers.server_of(node);
                (server.read(number), server.announced.clone())
            };
            // A blocked connection stays with its server.
            let generation = lock(&servers).server_of(node).generation;
            if entries.is_empty() {
                sim.timeout(READ_WAIT, announced.notified()).await;
                entries = lock(&servers).all[generation].read(number);
            }
            let last = entries.last().and_then(|(id, _)| id.strip_suffix("-0")?.parse().ok());
            let mut servers = lock(&servers);
            let server = &mut servers.all[generation];
            let (era, ages) = server.era_and_ages(&replica, &others, is_known, sim.now_us());
            (check_entries(&from, entries, &era, ages), last.unwrap_or(number))
        };
        let read = self.network.call(self.node, REDIS, read);
        let timeout = READ_WAIT + REPLY_TIMEOUT;
        self.network.sim.timeout(timeout, read).await.unwrap_or(Err(Lost))
    }
}
