//! The queues of pending direct debits.
//!
//! A queue is served in batches: while one batch is in progress, later debits gather for the next. An embedded server
//! has one queue for all keys, because its database has one writer. A replica has one queue per key, so that an
//! account whose row is locked delays only its own key. A debit that waits holds no connection.

use std::collections::HashMap;
use std::sync::Arc;

use foundation::clock::Monotonic;
use foundation::config::{Deployment, Settings};
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::id::KeyId;
use limiter::Window;
use limiter::redis::UnresolvedRequest;
use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{self, JoinError, JoinSet};

use super::debit_batching::{DebitQueueId, DebitQueues, EnqueueResult, FinishResult};
use super::journal::BalanceCache;
use super::{ConsumeDecision, direct_debit};
use crate::credits::CreditLedger;

/// The maximum number of debits that are not sorted into queues yet. The task that sorts them never waits.
const INBOX_MAX: usize = 4_096;
/// The maximum number of accounts that are remembered because their leases report stale balances.
const OUTDATED_MAX: usize = 100_000;

/// A direct debit, and the channel for its answer: the decision, or `None` if the key is not metered any more.
pub struct DebitRequest {
    pub key: KeyId,
    pub windows: Vec<Window>,
    pub cost: i64,
    /// What Redis may still apply to the windows.
    pub unsettled: Option<UnresolvedRequest>,
    pub reply_sender: oneshot::Sender<Result<Option<ConsumeDecision>>>,
}

/// Accepts direct debits and passes them to their queues.
pub struct DirectDebits {
    inbox: mpsc::Sender<DebitRequest>,
    /// Removed by [`run`].
    inbox_receiver: Mutex<Option<mpsc::Receiver<DebitRequest>>>,
    /// Limits the connections of a replica that debits use at the same time, so that they never use all of them.
    pub connections: Arc<Semaphore>,
    /// The balances that an embedded server has cached.
    pub balances: tokio::sync::Mutex<BalanceCache>,
    /// The accounts that a replica has debited while they may have a lease.
    pub outdated_accounts: OutdatedAccounts,
}

impl DirectDebits {
    pub fn new(settings: &Settings) -> Self {
        let (inbox, received) = mpsc::channel(INBOX_MAX);
        let connections = match settings.deployment {
            Deployment::Embedded { .. } => 1,
            Deployment::Replica { .. } => (settings.database_connections_max / 2).max(1),
        };
        let connections = Arc::new(Semaphore::new(usize::try_from(connections).unwrap_or(1)));
        let balances = tokio::sync::Mutex::default();
        Self {
            inbox,
            inbox_receiver: Mutex::new(Some(received)),
            connections,
            balances,
            outdated_accounts: OutdatedAccounts::default(),
        }
    }

    /// Sends a debit to its queue. Fails if the inbox is full or the server is stopping.
    pub fn submit(&self, debit: DebitRequest) -> Result<()> {
        self.inbox.try_send(debit).map_err(|failed| match failed {
            TrySendError::Full(_) => Error::Overloaded("credits"),
            TrySendError::Closed(_) => Error::StoreNotReady,
        })
    }
}

/// Accounts whose balances have changed without their leases, each with the number of its last change: the balances that
/// the leases report are stale.
#[derive(Default)]
pub struct OutdatedAccounts(Mutex<HashMap<KeyId, u64>>);

impl OutdatedAccounts {
    /// Records changed accounts. Those beyond [`OUTDATED_MAX`] stay stale until their next top-up.
    pub fn record(&self, keys: impl IntoIterator<Item = KeyId>) {
        let mut outdated = self.0.lock();
        for key in keys {
            let is_full = outdated.len() >= OUTDATED_MAX;
            if let Some(number) = outdated.get_mut(&key) {
                *number += 1;
            } else if !is_full {
                outdated.insert(key, 0);
            }
        }
    }

    /// Returns the accounts, with the numbers of their last changes.
    pub fn list(&self) -> Vec<(KeyId, u64)> {
        self.0.lock().iter().map(|(key, number)| (key.clone(), *number)).collect()
    }

    /// Removes an account, unless it was changed again.
    pub fn remove(&self, key: &KeyId, number: u64) {
        let mut outdated = self.0.lock();
        if outdated.get(key) == Some(&number) {
            outdated.remove(key);
        }
    }
}

/// The queues, and the batches in progress.
struct DebitBatches {
    ledger: Arc<CreditLedger>,
    queues: DebitQueues<DebitRequest>,
    /// Batches in progress. Each returns whether it found an account locked.
    batches: JoinSet<bool>,
    queue_by_task: HashMap<task::Id, DebitQueueId>,
}

/// Serves the queues until it is dropped.
pub async fn run(ledger: Arc<CreditLedger>) {
    let received = ledger.direct_debits.inbox_receiver.lock().take();
    let Some(mut received) = received else { return };
    let mut queues = DebitBatches {
        ledger,
        queues: DebitQueues::default(),
        batches: JoinSet::new(),
        queue_by_task: HashMap::new(),
    };
    let mut debits = Vec::new();
    loop {
        tokio::select! {
            // First, so that debits that have arrived join the next batch.
            biased;
            count = received.recv_many(&mut debits, 256) => {
                if count == 0 {
                    return;
                }
                debits.drain(..).for_each(|debit| queues.enqueue(debit));
            }
            Some(ended) = queues.batches.join_next_with_id() => queues.finish_batch(ended),
        }
    }
}

impl DebitBatches {
    fn enqueue(&mut self, debit: DebitRequest) {
        let has_own = self.ledger.context.redis.is_some() && !Safeguard::DebitQueue.is_disabled();
        let id = has_own.then(|| debit.key.clone());
        match self.queues.enqueue(&id, debit, Monotonic::now()) {
            EnqueueResult::Waiting => {}
            EnqueueResult::Start(batch) => self.start_batch(id, batch),
            EnqueueResult::Full(debit) => reject([debit], || Error::Overloaded("credits")),
            EnqueueResult::Locked(debit) => reject([debit], || Error::DebitTimeout),
        }
    }

    fn start_batch(&mut self, id: DebitQueueId, batch: Vec<DebitRequest>) {
        let ledger = self.ledger.clone();
        // A task per batch: queues do not wait for each other.
        let task =
            self.batches.spawn(async move { direct_debit::decide_and_reply(&ledger, batch).await });
        self.queue_by_task.insert(task.id(), id);
    }

    fn finish_batch(&mut self, ended: std::result::Result<(task::Id, bool), JoinError>) {
        let (task, is_locked) = ended.unwrap_or_else(|failed| (failed.id(), false));
        let Some(id) = self.queue_by_task.remove(&task) else { return };
        match self.queues.finish_batch(&id, is_locked, Monotonic::now()) {
            FinishResult::Idle => {}
            FinishResult::Start(batch) => self.start_batch(id, batch),
            FinishResult::Locked(waiting) => reject(waiting, || Error::DebitTimeout),
        }
    }
}

fn reject(debits: impl IntoIterator<Item = DebitRequest>, cause: impl Fn() -> Error) {
    for debit in debits {
        let _ = debit.reply_sender.send(Err(cause()));
    }
}

#[cfg(test)]
mod tests {
    use foundation::config::Config;

    use super::*;

    #[test]
    fn debits_use_half_of_the_connections_of_a_replica() {
        let mut settings = Config::default().validate().expect("valid settings");
        let connections =
            |settings: &Settings| DirectDebits::new(settings).connections.available_permits();
        settings.database_connections_max = 9;
        assert_eq!(connections(&settings), 1, "an embedded server has one writer");

        let (database_url, redis_url) = (String::new(), String::new());
        settings.deployment = Deployment::Replica { database_url, redis_url };
        for (all, of_debits) in [(9, 4), (2, 1), (1, 1)] {
            settings.database_connections_max = all;
            assert_eq!(connections(&settings), of_debits, "of {all}");
        }
    }

    #[test]
    fn caller_learns_why_its_debit_was_rejected() {
        let (reply_sender, mut reply) = oneshot::channel();
        let (key, windows, unsettled) = (KeyId::from("key_a"), Vec::new(), None);

        reject([DebitRequest { key, windows, cost: 1, unsettled, reply_sender }], || {
            Error::Overloaded("credits")
        });

        assert!(matches!(reply.try_recv(), Ok(Err(Error::Overloaded("credits")))));
    }

    #[test]
    fn account_is_removed_unless_it_was_changed_again() {
        let (outdated, key) = (OutdatedAccounts::default(), KeyId::from("key_a"));
        outdated.record([key.clone()]);
        let seen = outdated.list();
        outdated.record([key.clone()]);

        outdated.remove(&key, seen[0].1);
        assert_eq!(outdated.list().len(), 1, "its last change was not seen");

        outdated.remove(&key, outdated.list()[0].1);
        assert_eq!(outdated.list(), []);
    }

    #[test]
    fn accounts_beyond_the_maximum_are_not_recorded() {
        let outdated = OutdatedAccounts::default();
        let keys = |range: std::ops::Range<usize>| range.map(|n| KeyId::from(format!("key_{n}")));

        outdated.record(keys(0..OUTDATED_MAX + 1));
        outdated.record(keys(0..1));

        let numbers: Vec<_> = outdated.list().into_iter().map(|(_, number)| number).collect();
        assert_eq!((numbers.len(), numbers.iter().sum::<u64>()), (OUTDATED_MAX, 1));
    }
}
