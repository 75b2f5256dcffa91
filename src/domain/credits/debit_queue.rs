//! The queues of pending direct debits.
//!
//! A queue is served in batches: while one batch is in progress, later debits gather for the next. An embedded server
//! has one queue for all keys, because its database has one writer. A replica has one queue per key, so that an
//! account whose row is locked delays only its own key. A debit that waits holds no connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::config::{Deployment, Settings};
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::id::KeyId;
use limiter::Window;
use limiter::redis::Unsettled;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{self, JoinError, JoinSet};

use super::journal::Balances;
use super::{ConsumeDecision, direct_debit};
use crate::app::App;

/// The maximum number of debits that wait in one queue.
pub const DEBIT_QUEUE_MAX: usize = 1_000;
/// The maximum number of debits that are not sorted into queues yet. The task that sorts them never waits.
const INBOX_MAX: usize = 4_096;
/// The maximum number of accounts that are remembered because their leases report stale balances.
const OUTDATED_MAX: usize = 100_000;
/// For how long a replica rejects the debits of a key, without a database call, after it found the account locked.
const PAUSE_WHEN_LOCKED: Duration = Duration::from_millis(250);
/// From this number of queues on, queues that have paused long enough are removed.
const QUEUES_SWEEP_MIN: usize = 1_024;

/// A direct debit, and the channel for its answer: the decision, or `None` if the key is not metered any more.
pub struct Debit {
    pub key: KeyId,
    pub windows: Vec<Window>,
    pub cost: i64,
    /// What Redis may still apply to the windows.
    pub unsettled: Option<Unsettled>,
    pub answer: oneshot::Sender<Result<Option<ConsumeDecision>>>,
}

/// Accepts direct debits and passes them to their queues.
pub struct Debits {
    inbox: mpsc::Sender<Debit>,
    /// Removed by [`run`].
    received: Mutex<Option<mpsc::Receiver<Debit>>>,
    /// Limits the connections of a replica that debits use at the same time, so that they never use all of them.
    pub connections: Semaphore,
    /// The balances that an embedded server has cached.
    pub balances: tokio::sync::Mutex<Balances>,
    /// The accounts that a replica has debited while they may have a lease, each with the number of its last debit.
    outdated: Mutex<HashMap<KeyId, u64>>,
}

impl Debits {
    pub fn new(settings: &Settings) -> Self {
        let (inbox, received) = mpsc::channel(INBOX_MAX);
        let connections = match settings.engines {
            Deployment::Embedded { .. } => 1,
            Deployment::Replica { .. } => (settings.database_connections_max / 2).max(1),
        };
        let connections = Semaphore::new(usize::try_from(connections).unwrap_or(1));
        let balances = tokio::sync::Mutex::default();
        let outdated = Mutex::default();
        Self { inbox, received: Mutex::new(Some(received)), connections, balances, outdated }
    }

    fn outdated(&self) -> MutexGuard<'_, HashMap<KeyId, u64>> {
        self.outdated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records accounts whose balances have changed without their leases: the balances that the leases report are
    /// stale. Accounts beyond [`OUTDATED_MAX`] stay stale until their next top-up.
    pub fn note_debited(&self, keys: impl IntoIterator<Item = KeyId>) {
        let mut outdated = self.outdated();
        for key in keys {
            let is_full = outdated.len() >= OUTDATED_MAX;
            if let Some(number) = outdated.get_mut(&key) {
                *number += 1;
            } else if !is_full {
                outdated.insert(key, 0);
            }
        }
    }

    /// Returns the accounts that were debited, with the numbers of their last debits.
    pub fn debited(&self) -> Vec<(KeyId, u64)> {
        self.outdated().iter().map(|(key, number)| (key.clone(), *number)).collect()
    }

    /// Removes an account, unless it was debited again.
    pub fn forget_debited(&self, key: &KeyId, number: u64) {
        let mut outdated = self.outdated();
        if outdated.get(key) == Some(&number) {
            outdated.remove(key);
        }
    }

    /// Sends a debit to its queue. Fails if the inbox is full or the server is stopping.
    pub fn submit(&self, debit: Debit) -> Result<()> {
        self.inbox.try_send(debit).map_err(|failed| match failed {
            TrySendError::Full(_) => Error::Busy("credits"),
            TrySendError::Closed(_) => Error::StoreNotReady,
        })
    }
}

/// Identifies a queue. An embedded server has only `None`.
type QueueId = Option<KeyId>;

enum Queue {
    /// A batch is in progress, and these debits wait for its end.
    Waiting(Vec<Debit>),
    /// The last batch found the account locked.
    Pausing(Stopwatch),
}

struct Queues {
    app: Arc<App>,
    queues: HashMap<QueueId, Queue>,
    /// Batches in progress. Each returns whether it found an account locked.
    batches: JoinSet<bool>,
    served: HashMap<task::Id, QueueId>,
}

/// Serves the queues until it is dropped.
pub async fn run(app: Arc<App>) {
    let received = app.debits.received.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut received) = received else { return };
    let mut queues =
        Queues { app, queues: HashMap::new(), batches: JoinSet::new(), served: HashMap::new() };
    let mut debits = Vec::new();
    loop {
        tokio::select! {
            // First, so that debits that have arrived join the next batch.
            biased;
            count = received.recv_many(&mut debits, 256) => {
                if count == 0 {
                    return;
                }
                debits.drain(..).for_each(|debit| queues.add(debit));
            }
            Some(ended) = queues.batches.join_next_with_id() => queues.end(ended),
        }
    }
}

impl Queues {
    fn add(&mut self, debit: Debit) {
        let has_own = self.app.redis.is_some() && !Safeguard::DebitQueue.is_disabled();
        let id = has_own.then(|| debit.key.clone());
        match self.queues.get_mut(&id) {
            Some(Queue::Waiting(waiting)) if waiting.len() < DEBIT_QUEUE_MAX => waiting.push(debit),
            Some(Queue::Waiting(_)) => refuse([debit], || Error::Busy("credits")),
            Some(Queue::Pausing(since)) if since.elapsed() < PAUSE_WHEN_LOCKED => {
                refuse([debit], || Error::DebitTimeout);
            }
            Some(Queue::Pausing(_)) | None => self.serve(id, vec![debit]),
        }
    }

    fn serve(&mut self, id: QueueId, batch: Vec<Debit>) {
        let app = self.app.clone();
        // A task per batch: queues do not wait for each other.
        let task = self.batches.spawn(async move { direct_debit::serve(&app, batch).await });
        self.served.insert(task.id(), id.clone());
        self.queues.insert(id, Queue::Waiting(Vec::new()));
    }

    fn end(&mut self, ended: std::result::Result<(task::Id, bool), JoinError>) {
        let (task, is_locked) = ended.unwrap_or_else(|failed| (failed.id(), false));
        let Some(id) = self.served.remove(&task) else { return };
        let Some(Queue::Waiting(waiting)) = self.queues.remove(&id) else { return };
        if is_locked && id.is_some() {
            refuse(waiting, || Error::DebitTimeout);
            self.pause(id);
        } else if !waiting.is_empty() {
            self.serve(id, waiting);
        }
    }

    fn pause(&mut self, id: QueueId) {
        if self.queues.len() >= QUEUES_SWEEP_MIN {
            self.queues.retain(|_, queue| match queue {
                Queue::Waiting(_) => true,
                Queue::Pausing(since) => since.elapsed() < PAUSE_WHEN_LOCKED,
            });
        }
        self.queues.insert(id, Queue::Pausing(Stopwatch::new()));
    }
}

fn refuse(debits: impl IntoIterator<Item = Debit>, cause: impl Fn() -> Error) {
    for debit in debits {
        let _ = debit.answer.send(Err(cause()));
    }
}
