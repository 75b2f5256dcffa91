//! A model of Postgres: transactions, the change log, and the registered replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::context::change_log::{LogReply, LogStep};
use store::{ChangeRow, LogHead, LogPage, PAGE_ROWS};

use crate::executor::{Node, Sim, lock};
use crate::network::{Lost, Network};

pub const DATABASE: Node = 100;
/// How long the database keeps the transaction of a client that has silently disappeared.
const ABANDONED_TRANSACTION_MAX: Duration = Duration::from_secs(5);
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a replica of the grace period's end is waited for beyond it, in milliseconds.
const GRACE_MARGIN_MS: i64 = 10_000;
const SILENT_MS: i64 = 2_000;

#[derive(Default)]
pub struct Database {
    /// How far its clock is ahead of the virtual time, in milliseconds.
    pub clock_offset_ms: i64,
    last_position: i64,
    next_number: i64,
    last_transaction: u64,
    running: BTreeMap<u64, Transaction>,
    /// The rows of the change log, each with the number of its transaction.
    rows: BTreeMap<i64, (i64, ChangeRow)>,
    /// The committed value of each key.
    pub keys: BTreeMap<usize, i64>,
    /// What a standby replays, in the order of commits.
    pub wal: Vec<WalRecord>,
    /// When each value of each key was committed.
    pub history: BTreeMap<usize, Vec<CommittedValue>>,
    replicas: BTreeMap<String, ReplicaRow>,
    acknowledged: BTreeSet<(i64, String)>,
}

/// A committed change that a standby replays.
#[derive(Debug, Clone)]
pub struct WalRecord {
    pub at_us: u64,
    pub change: ReplayedChange,
}

#[derive(Debug, Clone)]
pub enum ReplayedChange {
    Key(usize, i64),
    /// The number of a heartbeat of a process.
    Heartbeat(String, i64),
}

/// A committed value of a key.
pub struct CommittedValue {
    pub value: i64,
    pub at_us: u64,
    /// The id of the process that committed it.
    pub writer: String,
}

#[derive(Default)]
struct Transaction {
    /// Assigned with its first write.
    number: Option<i64>,
    locked_key: Option<usize>,
    has_logged: bool,
    writes: Vec<Write>,
}

/// What a transaction changes when it commits.
#[derive(Debug, Clone)]
pub enum Write {
    /// A new value of a key, and the id of the process that writes it.
    Key(usize, i64, String),
    Feed {
        replica: String,
        era: String,
        grace_ms: i64,
    },
    Acknowledge {
        replica: String,
        intents: Vec<i64>,
    },
}

#[derive(Debug, Clone, Default)]
struct ReplicaRow {
    seen_at: i64,
    feed: String,
    grace_ms: Option<i64>,
}

impl Database {
    fn now_ms(&self, sim: &Sim) -> i64 {
        let now_ms = i64::try_from(sim.now_us() / 1_000).expect("a short time");
        1_000_000_000 + self.clock_offset_ms + now_ms
    }

    /// Gives a transaction its number, unless it has one.
    fn assign_number(&mut self, id: u64) -> Result<i64, Lost> {
        let transaction = self.running.get_mut(&id).ok_or(Lost)?;
        Ok(*transaction.number.get_or_insert_with(|| {
            self.next_number += 1;
            self.next_number - 1
        }))
    }

    fn write(&mut self, id: u64, write: Write) -> Result<(), Lost> {
        self.assign_number(id)?;
        let transaction = self.running.get_mut(&id).ok_or(Lost)?;
        transaction.writes.push(write);
        Ok(())
    }

    fn insert_rows(
        &mut self,
        (id, at): (u64, i64),
        first: i64,
        subjects: &[String],
    ) -> Result<(), Lost> {
        let number = self.assign_number(id)?;
        self.running.get_mut(&id).ok_or(Lost)?.has_logged = true;
        for (seq, subject) in (first..).zip(subjects) {
            self.rows.insert(seq, (number, ChangeRow { seq, at, subject: subject.clone() }));
        }
        Ok(())
    }

    fn commit(&mut self, id: u64, at_us: u64) -> Result<(), Lost> {
        let transaction = self.running.remove(&id).ok_or(Lost)?;
        for write in transaction.writes {
            match write {
                Write::Key(key, value, writer) => {
                    self.keys.insert(key, value);
                    self.wal.push(WalRecord { at_us, change: ReplayedChange::Key(key, value) });
                    let values = self.history.entry(key).or_default();
                    values.push(CommittedValue { value, at_us, writer });
                }
                Write::Feed { replica, era, grace_ms } => {
                    if let Some(row) = self.replicas.get_mut(&replica) {
                        (row.feed, row.grace_ms) = (era, Some(grace_ms));
                    }
                }
                Write::Acknowledge { replica, intents } => {
                    let acknowledged = intents.into_iter().map(|intent| (intent, replica.clone()));
                    self.acknowledged.extend(acknowledged);
                }
            }
        }
        Ok(())
    }

    fn roll_back(&mut self, id: u64) {
        if let Some(number) = self.running.remove(&id).and_then(|transaction| transaction.number) {
            self.rows.retain(|_, (writer, _)| *writer != number);
        }
    }

    /// Rolls all transactions back, as a restart does.
    pub fn restart(&mut self) {
        let ids: Vec<_> = self.running.keys().copied().collect();
        for id in ids {
            self.roll_back(id);
        }
    }

    /// Uses up positions of the change log, as a large transaction that is rolled back does.
    pub fn skip_positions(&mut self, count: i64) {
        self.last_position += count;
    }

    fn lowest_running(&self, only_loggers: bool) -> i64 {
        let running = self.running.values().filter(|one| one.has_logged || !only_loggers);
        running.filter_map(|one| one.number).min().unwrap_or(self.next_number)
    }

    fn is_visible(&self, number: i64) -> bool {
        self.running.values().all(|one| one.number != Some(number))
    }

    fn visible_rows(&self, from: i64, to: i64) -> impl Iterator<Item = &ChangeRow> {
        let rows = self.rows.range(from..=to.max(from)).filter(move |(seq, _)| **seq <= to);
        rows.filter(|(_, (number, _))| self.is_visible(*number)).map(|(_, (_, row))| row)
    }

    fn head(&self, now: i64, replica: &str) -> LogHead {
        let own = self.replicas.get(replica);
        let is_old = |row: &&ChangeRow| row.at < now - 60_000;
        LogHead {
            now,
            top: self.last_position,
            ended_below: self.lowest_running(false),
            next: self.next_number,
            settled: self.visible_rows(1, i64::MAX).filter(is_old).last().map_or(0, |row| row.seq),
            feed: own.map(|row| row.feed.clone()),
            seen_at: own.map(|row| row.seen_at),
            has_older_replicas: false,
        }
    }

    fn reply(&self, now: i64, step: &LogStep, replica: &str) -> LogReply {
        match step {
            LogStep::LoadPage { after } => {
                let rows = self.visible_rows(after.saturating_add(1), i64::MAX);
                let rows = rows.take(PAGE_ROWS).cloned().collect();
                LogReply::Page(LogPage { head: self.head(now, replica), rows })
            }
            LogStep::LoadWritersEndedBelow => {
                LogReply::WritersEndedBelow(self.lowest_running(true))
            }
            LogStep::ListRows { ranges } => {
                let rows = ranges.iter().flat_map(|(first, last)| self.visible_rows(*first, *last));
                LogReply::Rows(rows.take(PAGE_ROWS).cloned().collect())
            }
            LogStep::End(_) => unreachable!("the end is no query"),
        }
    }

    /// Lists the replicas that may rely on announcements and do not have this intent, as the program's query does.
    fn list_unreached(&self, now: i64, writer: &str, era: &str, intent: i64) -> Vec<String> {
        let is_unreached = |(id, row): &(&String, &ReplicaRow)| {
            let is_waited_for = match era.is_empty() {
                true => now - row.seen_at < row.grace_ms.unwrap_or(0) + GRACE_MARGIN_MS,
                false => row.feed != era && now - row.seen_at < SILENT_MS,
            };
            let is_acknowledged = self.acknowledged.contains(&(intent, (*id).clone()));
            *id != writer && !row.feed.is_empty() && !is_acknowledged && is_waited_for
        };
        self.replicas.iter().filter(is_unreached).map(|(id, _)| id.clone()).collect()
    }
}

/// A client of the database. An error means that it is unknown whether the statement was executed.
#[derive(Clone)]
pub struct DatabaseClient {
    pub network: Network,
    pub node: Node,
    pub database: Arc<Mutex<Database>>,
}

impl DatabaseClient {
    /// Executes a statement that takes no time in the database.
    async fn query<T: Send + 'static>(
        &self,
        statement: impl FnOnce(&mut Database, i64) -> T + Send + 'static,
    ) -> Result<T, Lost> {
        let (database, sim) = (self.database.clone(), self.network.sim.clone());
        let executed = self.network.call(self.node, DATABASE, async move {
            let mut database = lock(&database);
            let now = database.now_ms(&sim);
            statement(&mut database, now)
        });
        self.network.sim.timeout(STATEMENT_TIMEOUT, executed).await.unwrap_or(Err(Lost))
    }

    pub async fn load_key(&self, key: usize) -> Result<i64, Lost> {
        self.query(move |database, _| database.keys.get(&key).copied().unwrap_or(0)).await
    }

    pub async fn read_log(&self, step: LogStep, replica: String) -> Result<LogReply, Lost> {
        self.query(move |database, now| database.reply(now, &step, &replica)).await
    }

    pub async fn list_existing_positions(&self, positions: Vec<i64>) -> Result<Vec<i64>, Lost> {
        let exists = |database: &Database, seq: i64| database.visible_rows(seq, seq).count() > 0;
        self.query(move |database, _| {
            positions.into_iter().filter(|seq| exists(database, *seq)).collect()
        })
        .await
    }

    /// Registers a replica with a heartbeat. Returns the replicas that have registered within the last seven seconds.
    pub async fn register(&self, replica: String, heartbeat: i64) -> Result<Vec<String>, Lost> {
        let sim = self.network.sim.clone();
        self.query(move |database, now| {
            let change = ReplayedChange::Heartbeat(replica.clone(), heartbeat);
            database.wal.push(WalRecord { at_us: sim.now_us(), change });
            database.replicas.entry(replica).or_default().seen_at = now;
            let live = database.replicas.iter().filter(|(_, row)| row.seen_at > now - 7_000);
            live.map(|(id, _)| id.clone()).collect()
        })
        .await
    }

    pub async fn begin(&self) -> Result<Tx, Lost> {
        let id = self.query(|database, _| {
            database.last_transaction += 1;
            database.running.insert(database.last_transaction, Transaction::default());
            database.last_transaction
        });
        Ok(Tx { id: id.await?, client: self.clone(), has_ended: false })
    }
}

/// A transaction, rolled back when it is dropped.
pub struct Tx {
    id: u64,
    client: DatabaseClient,
    has_ended: bool,
}

impl Tx {
    /// Locks a key and returns its value.
    pub async fn lock_key(&mut self, key: usize) -> Result<i64, Lost> {
        let id = self.id;
        for _ in 0..500 {
            let locked = self.client.query(move |database, _| {
                let is_free = |(other, one): (&u64, &Transaction)| {
                    *other == id || one.locked_key != Some(key)
                };
                let is_free = database.running.iter().all(is_free);
                database.running.get_mut(&id).ok_or(Lost)?.locked_key = is_free.then_some(key);
                Ok(is_free.then(|| database.keys.get(&key).copied().unwrap_or(0)))
            });
            match locked.await?? {
                Some(value) => return Ok(value),
                None => self.client.network.sim.sleep_ms(5).await,
            }
        }
        Err(Lost)
    }

    pub async fn write(&mut self, write: Write) -> Result<(), Lost> {
        let id = self.id;
        self.client.query(move |database, _| database.write(id, write)).await?
    }

    /// Inserts rows into the change log. Their positions are assigned a moment before the transaction is visible.
    pub async fn insert_changes(&mut self, subjects: Vec<String>) -> Result<i64, Lost> {
        let (id, count) = (self.id, i64::try_from(subjects.len()).expect("few"));
        let first = self.client.query(move |database, _| {
            database.last_position += count;
            database.last_position - count + 1
        });
        let first = first.await?;
        let inserted =
            move |database: &mut Database, now| database.insert_rows((id, now), first, &subjects);
        self.client.query(inserted).await??;
        Ok(first)
    }

    pub async fn list_unreached(
        &mut self,
        writer: String,
        era: String,
        intent: i64,
    ) -> Result<Vec<String>, Lost> {
        let list =
            move |database: &mut Database, now| database.list_unreached(now, &writer, &era, intent);
        self.client.query(list).await
    }

    pub async fn commit(mut self) -> Result<(), Lost> {
        self.has_ended = true;
        let (id, network) = (self.id, self.client.network.clone());
        let sim = network.sim.clone();
        let commit = move |database: &mut Database, _| database.commit(id, sim.now_us());
        let committed = self.client.query(commit).await;
        if committed.is_err() {
            // A commit on its way arrives late, or never.
            self.has_ended = false;
            network.sim.trace(|| format!("the reply to commit {id} is lost"));
        }
        committed?
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let (id, client) = (self.id, self.client.clone());
        let network = client.network.clone();
        network.clone().spawn(async move {
            network.wait_until_noticed(client.node, DATABASE, ABANDONED_TRANSACTION_MAX).await;
            lock(&client.database).roll_back(id);
        });
    }
}
