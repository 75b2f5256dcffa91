//! Runs all write transactions of an embedded server on one connection to its SQLite file.
//!
//! SQLite runs one write transaction at a time, and a commit is durable after a write to the disk. Transactions
//! therefore wait in a queue, in order of arrival, and consecutive ones share a commit: each runs behind a savepoint
//! of its own, and is acknowledged after the commit that contains it. A transaction that fails or is dropped is
//! rolled back to its savepoint and affects no other. If the commit itself fails, all transactions that share it
//! fail, and none of them has been acknowledged.
//!
//! A transaction sees the changes of earlier ones in the same batch. A transaction that is rolled back because of
//! such a change ends the batch, and later reads wait for its commit: so a caller that was rejected can read the
//! reason.
//!
//! Other processes, such as a command on the same machine, may also write to the file. The first transaction of a
//! batch acquires SQLite's write lock, and waits for it up to the connection's busy timeout. Transactions are
//! numbered; a number is skipped when another process has written.
//!
//! A row of the [journal](super::journal) is appended without a transaction around it: one statement instead of three.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::error::{Error, Result, is_database_outage};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use self::append::AppendRequest;
use super::journal::Journal;

mod append;

/// The maximum number of transactions that wait for the writer.
pub const QUEUE_MAX: usize = 1_000;
/// The maximum time that a transaction waits for the writer.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of transactions that share a commit, and the time after the batch began during which more may
/// join.
const BATCH_TRANSACTIONS_MAX: usize = 64;
const BATCH_OPEN_TIME: Duration = Duration::from_millis(5);

/// The memory that the connection may use for pages of the file, in KiB as SQLite writes it. Rows with random ids change pages
/// all over the file: with less, those of one import are written and read again and again.
const PAGE_CACHE: &str = "-65536";

/// A request for the connection.
enum Request {
    Begin(BeginRequest),
    Append(AppendRequest),
}

/// A request for a transaction.
type BeginRequest = oneshot::Sender<Result<WriterTransaction>>;

/// Begins transactions on the write connection. Clones share it.
#[derive(Debug, Clone)]
pub struct Writer {
    requests: mpsc::Sender<Request>,
    close: Arc<Notify>,
    visibility: watch::Receiver<Visibility>,
    journal: Journal,
}

/// Says whether readers see every change for which a caller has been rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visibility {
    Complete,
    /// A transaction was rolled back that may have seen changes of its batch that are not committed yet.
    Pending,
}

impl Writer {
    /// Starts a writer. Its connection is opened on first use.
    pub fn start(options: SqliteConnectOptions) -> Self {
        let (requests, received) = mpsc::channel(QUEUE_MAX);
        let close = Arc::new(Notify::new());
        let (sender, visibility) = watch::channel(Visibility::Complete);
        let journal = Journal::new();
        let queue = WriterQueue {
            requests: received,
            visibility: sender,
            journal: journal.clone(),
            number: FIRST_NUMBER,
            data_version: None,
        };
        tokio::spawn(run(options.pragma("cache_size", PAGE_CACHE), queue, close.clone()));
        Self { requests, close, visibility, journal }
    }

    /// Returns the state of the journal of debits.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Waits until readers see every change that a rolled-back transaction may have seen.
    pub async fn wait_until_visible(&self) {
        if *self.visibility.borrow() == Visibility::Pending {
            // Fails if the writer has been closed: then nothing is pending.
            let is_complete = |visibility: &Visibility| *visibility == Visibility::Complete;
            let _ = self.visibility.clone().wait_for(is_complete).await;
        }
    }

    /// Begins a transaction when all those requested earlier have ended. Fails at once if the queue is full.
    pub async fn begin(&self) -> Result<WriterTransaction> {
        self.enqueue(Request::Begin).await.unwrap_or_else(Err)
    }

    /// Appends a row to the journal of debits when all transactions requested earlier have ended, and waits until it is
    /// durable. Returns `false`, and writes nothing, if the row would not be the transaction `number`. Fails at once if
    /// the queue is full.
    pub async fn append_to_journal(&self, number: u64, units: String) -> Result<bool> {
        let append = |begun| Request::Append(AppendRequest { number, units, begun });
        let appended = self.enqueue(append).await?;
        appended.await.unwrap_or_else(|_| Err(closed_error()))
    }

    /// Waits until the request has its turn.
    async fn enqueue<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T> {
        let (begin, begun) = oneshot::channel();
        self.requests.try_send(request(begin)).map_err(|failed| match failed {
            TrySendError::Full(_) => Error::Overloaded("the database"),
            TrySendError::Closed(_) => closed_error(),
        })?;
        match tokio::time::timeout(QUEUE_TIMEOUT, begun).await {
            Ok(begun) => begun.map_err(|_| closed_error()),
            Err(_) => Err(Error::StoreTimeout(QUEUE_TIMEOUT.as_secs())),
        }
    }

    /// Waits until the transaction in progress has ended, and closes the connection.
    pub async fn close(&self) {
        self.close.notify_one();
        self.requests.closed().await;
    }
}

fn closed_error() -> Error {
    Error::Store(sqlx::Error::PoolClosed)
}

/// A transaction behind a savepoint. It is rolled back when dropped.
#[derive(Debug)]
pub struct WriterTransaction {
    /// `None` once the transaction has ended.
    connection: Option<SqliteConnection>,
    end: Option<oneshot::Sender<EndRequest>>,
    /// Present if the transaction sees changes that are not committed yet.
    visibility: Option<watch::Sender<Visibility>>,
    journal: Journal,
    number: u64,
    /// Whether the transaction has emptied the journal.
    is_folded: bool,
}

/// A request to end a transaction. It returns the connection to the writer.
#[derive(Debug)]
struct EndRequest {
    connection: SqliteConnection,
    /// Receives the result of the commit. `None` if the transaction is rolled back.
    commit: Option<oneshot::Sender<Result<()>>>,
}

impl WriterTransaction {
    fn new(
        connection: SqliteConnection,
        queue: &WriterQueue,
        is_first: bool,
    ) -> (Self, oneshot::Receiver<EndRequest>) {
        let (end, ended) = oneshot::channel();
        let transaction = Self {
            connection: Some(connection),
            end: Some(end),
            visibility: (!is_first).then(|| queue.visibility.clone()),
            journal: queue.journal.clone(),
            number: queue.number,
            is_folded: false,
        };
        (transaction, ended)
    }

    /// Returns the number of the transaction: one more than that of the previous one, unless another process has
    /// written in between.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the state of the journal of debits.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Records that this transaction has emptied the journal.
    pub fn record_fold(&mut self) {
        self.is_folded = true;
    }

    /// Commits, and waits until the changes are durable, together with those of the transactions that share the
    /// commit.
    pub async fn commit(mut self) -> Result<()> {
        let (commit, committed) = oneshot::channel();
        self.end(Some(commit));
        committed.await.unwrap_or_else(|_| Err(closed_error()))?;
        if self.is_folded {
            self.journal.record_fold_commit(self.number);
        }
        Ok(())
    }

    fn end(&mut self, commit: Option<oneshot::Sender<Result<()>>>) {
        if let (Some(connection), Some(end)) = (self.connection.take(), self.end.take()) {
            if let (None, Some(visibility)) = (&commit, &self.visibility) {
                visibility.send_replace(Visibility::Pending);
            }
            // A writer that has ended does not need the connection; it is closed.
            let _ = end.send(EndRequest { connection, commit });
        }
    }
}

impl Drop for WriterTransaction {
    fn drop(&mut self) {
        self.end(None);
    }
}

const CONNECTION_EXPECTED: &str = "a transaction has its connection until it ends";

impl Deref for WriterTransaction {
    type Target = SqliteConnection;
    fn deref(&self) -> &Self::Target {
        self.connection.as_ref().expect(CONNECTION_EXPECTED)
    }
}

impl DerefMut for WriterTransaction {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.connection.as_mut().expect(CONNECTION_EXPECTED)
    }
}

/// The writer's ends of the channels and state that it shares with callers.
struct WriterQueue {
    requests: mpsc::Receiver<Request>,
    visibility: watch::Sender<Visibility>,
    journal: Journal,
    /// The number of the last transaction.
    number: u64,
    /// SQLite's `data_version`, which changes when another connection has written. `None` until this connection has
    /// read it.
    data_version: Option<i64>,
}

/// The initial transaction number, which stands for every transaction of an earlier process.
const FIRST_NUMBER: u64 = 1;

async fn run(options: SqliteConnectOptions, mut queue: WriterQueue, close: Arc<Notify>) {
    let (mut idle, mut next) = (None, None);
    loop {
        let first = match next.take() {
            Some(next) => next,
            None => tokio::select! {
                biased;
                () = close.notified() => break,
                first = queue.requests.recv() => match first {
                    Some(first) => first,
                    None => break,
                },
            },
        };
        let connection = match idle.take() {
            Some(connection) => connection,
            None => match options.connect().await {
                Ok(connection) => {
                    queue.data_version = None;
                    connection
                }
                Err(e) => {
                    first.fail(e.into());
                    continue;
                }
            },
        };
        (idle, next) = match first {
            Request::Begin(first) => serve(connection, first, &mut queue).await,
            Request::Append(append) => (append.run(connection, &mut queue).await, None),
        };
        queue.visibility.send_if_modified(|visibility| {
            std::mem::replace(visibility, Visibility::Complete) == Visibility::Pending
        });
    }
    if let Some(connection) = idle {
        let _ = connection.close().await;
    }
}

impl Request {
    fn fail(self, cause: Error) {
        match self {
            Self::Begin(begin) => drop(begin.send(Err(cause))),
            Self::Append(append) => {
                if let Some(result) = append.begin() {
                    let _ = result.send(Err(cause));
                }
            }
        }
    }
}

/// Serves transactions, that of `request` first, and commits them together. Returns the connection, unless it failed:
/// the state in which a disk error leaves a transaction depends on the error. Returns the request to serve next, if
/// one has been received.
async fn serve(
    mut connection: SqliteConnection,
    mut request: BeginRequest,
    queue: &mut WriterQueue,
) -> (Option<SqliteConnection>, Option<Request>) {
    let opened = Stopwatch::new();
    match begin(&mut connection).await {
        Ok(version) if queue.data_version.replace(version) == Some(version) => {}
        Ok(_) => {
            queue.number += 1;
            queue.journal.record_append(queue.number);
        }
        Err(cause) => {
            let _ = request.send(Err(cause.into()));
            let _ = connection.close().await;
            return (None, None);
        }
    }
    let mut commits = Vec::new();
    for turn in 1.. {
        queue.number += 1;
        let is_first = commits.is_empty();
        let (transaction, ended) = WriterTransaction::new(connection, queue, is_first);
        // If the caller no longer waits, the transaction is dropped, which ends it.
        drop(request.send(Ok(transaction)));
        let Ok(end) = ended.await else { return (None, None) };
        connection = end.connection;
        let is_committed = end.commit.is_some();
        commits.extend(end.commit);
        let is_open =
            is_committed && turn < BATCH_TRANSACTIONS_MAX && opened.elapsed() < BATCH_OPEN_TIME;
        let next = if is_open { queue.requests.try_recv().ok() } else { None };
        let sql = match (is_committed, &next) {
            (true, Some(Request::Begin(_))) => "RELEASE turn; SAVEPOINT turn",
            (true, Some(Request::Append(_)) | None) => "RELEASE turn; COMMIT",
            (false, _) => "ROLLBACK TO turn; COMMIT",
        };
        if let Err(cause) = execute(&mut connection, sql).await {
            let cause = Arc::new(shared_commit_error(cause));
            for commit in commits {
                let _ = commit.send(Err(Error::Shared(cause.clone())));
            }
            let _ = connection.close().await;
            return (None, next);
        }
        match next {
            Some(Request::Begin(next)) => request = next,
            Some(Request::Append(_)) | None => {
                for commit in commits {
                    let _ = commit.send(Ok(()));
                }
                return (Some(connection), next);
            }
        }
    }
    (Some(connection), None)
}

/// Returns the error for every transaction that shares a failed commit. A disk failure in one transaction rolls the
/// others back at once, and SQLite's final error does not name it.
fn shared_commit_error(cause: sqlx::Error) -> Error {
    if is_database_outage(&cause) { cause.into() } else { Error::CommitLost(cause.to_string()) }
}

/// Begins the first transaction of a batch. Returns SQLite's `data_version`, which changes when another connection
/// has written.
async fn begin(connection: &mut SqliteConnection) -> sqlx::Result<i64> {
    let sql = "BEGIN IMMEDIATE; SAVEPOINT turn; PRAGMA data_version";
    sqlx::query_scalar(sql).fetch_one(connection).await
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) -> sqlx::Result<()> {
    sqlx::query(sql).execute(connection).await.map(drop)
}
