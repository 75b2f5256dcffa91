//! Top-ups that are debited together. A commit, and each statement before it, costs the database about the same for one
//! account as for many, and many keys may need a lease at once: after a restart of Redis, or at the start of a day.
//!
//! A top-up has its own transaction while one of the connections reserved for debits is free. Those of different keys that wait
//! for a connection share the next one: one transaction, with the same few statements for all its accounts. It waits for no account if there are several. An account that another transaction has locked, and a
//! top-up that also has to close a lease in Redis, get a transaction of their own, so they delay only their own key.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use foundation::error::{Error, Result};
use foundation::id::KeyId;
use foundation::model::{CreditAccount, Credits, Lease};
use parking_lot::Mutex;
use store::with_timeout;
use tokio::sync::{Semaphore, oneshot};

use super::closing_steps::AccountStep;
use super::retries::ACCOUNT_TIMEOUT;
use super::top_up::{LeaseObservation, TopUpChange, TopUpResult};
use super::{LOCK_WAIT, leases};
use crate::context::{Context, LeaseHolder};

/// The maximum number of batches in progress while the database is near: one is decided while the other one is committed.
const BATCHES_MAX: usize = 2;
/// The maximum number while it is far away, where a batch mostly waits for the network.
const FAR_BATCHES_MAX: usize = 8;
/// From this round trip on, the database is far away.
const FAR: Duration = Duration::from_millis(10);
/// How long a batch may take. It is not ended early: what was debited, but not added to a lease, is out of use until the
/// lease is closed.
const BATCH_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of top-ups in a batch.
const BATCH_TOP_UPS_MAX: usize = 256;

/// The top-ups of a process that wait.
#[derive(Clone)]
pub struct TopUpBatches {
    context: Arc<Context>,
    /// Limits the connections that debits use at the same time.
    connections: Arc<Semaphore>,
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<TopUpRequest>,
    batches: usize,
}

/// A top-up, and the channel for its answer: `None` if it needs a transaction of its own.
struct TopUpRequest {
    key: KeyId,
    observed: LeaseObservation,
    cost: i64,
    reply_sender: oneshot::Sender<Result<Option<TopUpResult>>>,
}

impl TopUpBatches {
    pub fn new(context: Arc<Context>, connections: Arc<Semaphore>) -> Self {
        Self { context, connections, queue: Arc::default() }
    }

    /// Debits a top-up from the account of a key, for a request of this cost; see [`TopUpChange`]. Returns `None`, and has
    /// changed nothing, if it needs a transaction of its own.
    pub async fn top_up(
        &self,
        key: &KeyId,
        observed: LeaseObservation,
        cost: i64,
    ) -> Result<Option<TopUpResult>> {
        let (reply_sender, reply) = oneshot::channel();
        let request = TopUpRequest { key: key.clone(), observed, cost, reply_sender };
        if self.queue.lock().add(request, self.batches_max()) {
            // A task of its own: a caller that stops waiting must not end the top-ups of others.
            tokio::spawn(self.clone().run());
        }
        reply.await.unwrap_or_else(|_| Err(Error::Internal("a batch of top-ups has ended".into())))
    }

    fn batches_max(&self) -> usize {
        let round_trip = self.context.database_distance.round_trip();
        if round_trip.is_some_and(|it| it >= FAR) { FAR_BATCHES_MAX } else { BATCHES_MAX }
    }

    /// Debits batches until no top-up waits.
    async fn run(self) {
        let mut runner = BatchRunner(Some(&self.queue));
        while let Some(mut batch) = runner.next_batch() {
            match self.debit_on_connection(&batch).await {
                Ok(mut results) => {
                    for request in batch {
                        // Each result once: a top-up is added to a lease once.
                        let _ = request.reply_sender.send(Ok(results.remove(&request.key)));
                    }
                }
                Err(cause) if cause.is_lock_timeout() => {
                    for request in batch {
                        let _ = request.reply_sender.send(Ok(None));
                    }
                }
                Err(cause) => {
                    if cause.is_outage() {
                        // Those that have waited meanwhile need not find out by themselves.
                        batch.append(&mut self.queue.lock().waiting);
                    }
                    let cause = Arc::new(cause);
                    for request in batch {
                        let _ = request.reply_sender.send(Err(Error::Shared(cause.clone())));
                    }
                }
            }
        }
    }

    /// Calls [`Self::debit`] on one of the connections reserved for debits.
    async fn debit_on_connection(
        &self,
        batch: &[TopUpRequest],
    ) -> Result<HashMap<KeyId, TopUpResult>> {
        let connection =
            async { self.connections.acquire().await.map_err(|_| Error::StoreNotReady) };
        let _connection = with_timeout(ACCOUNT_TIMEOUT, connection).await?;
        with_timeout(BATCH_TIMEOUT, self.debit(batch)).await
    }

    /// Debits the top-ups of a batch, and returns the results by key. Keys without one were not changed.
    async fn debit(&self, batch: &[TopUpRequest]) -> Result<HashMap<KeyId, TopUpResult>> {
        let context = &self.context;
        let mut keys: Vec<_> = batch.iter().map(|request| request.key.clone()).collect();
        keys.sort_unstable();
        let mut tx = leases::begin_registered(context, LOCK_WAIT).await?;
        let locked = match &keys[..] {
            // It may wait for its account: that holds up no other key.
            [key] => Vec::from_iter(tx.lock_account(key).await?.map(|it| (key.clone(), it))),
            _ => tx.lock_free_accounts(&keys).await?,
        };
        let mut accounts: HashMap<_, _> = locked.into_iter().collect();
        let mut changes = AccountChanges::default();
        for request in batch {
            // A caller that has stopped waiting meanwhile would not add its top-up to the lease.
            if let Some(account) = accounts.remove(&request.key)
                && !request.reply_sender.is_closed()
            {
                changes.add(context, request, account);
            }
        }
        let AccountChanges { balances, leases, results } = changes;
        if results.is_empty() {
            return Ok(results);
        }
        tx.update_balances(&balances).await?;
        let leases: Vec<_> = leases.into_iter().map(|((key, _), lease)| (key, lease)).collect();
        tx.upsert_leases(&leases).await?;
        leases::commit(tx).await?;
        for result in results.values() {
            leases::count_top_up(context, result);
        }
        Ok(results)
    }
}

impl Queue {
    /// Adds a top-up. Returns whether the caller must run batches.
    fn add(&mut self, request: TopUpRequest, batches_max: usize) -> bool {
        self.waiting.push(request);
        let is_free = self.batches < batches_max;
        self.batches += usize::from(is_free);
        is_free
    }

    /// Returns the top-ups that have waited longest, without those whose callers have stopped waiting. `None` means that the
    /// caller no longer runs batches.
    fn next_batch(&mut self) -> Option<Vec<TopUpRequest>> {
        self.waiting.retain(|request| !request.reply_sender.is_closed());
        if self.waiting.is_empty() {
            // Under the same lock, so that no top-up is added for a task that has ended.
            self.batches -= 1;
            return None;
        }
        let count = self.waiting.len().min(BATCH_TOP_UPS_MAX);
        Some(self.waiting.drain(..count).collect())
    }
}

/// A task that runs batches, until there are none.
struct BatchRunner<'a>(Option<&'a Mutex<Queue>>);

impl BatchRunner<'_> {
    fn next_batch(&mut self) -> Option<Vec<TopUpRequest>> {
        let queue = self.0.take()?;
        let batch = queue.lock().next_batch()?;
        self.0 = Some(queue);
        Some(batch)
    }
}

impl Drop for BatchRunner<'_> {
    /// Rejects the top-ups that wait if the task did not finish, so that their callers do not wait in vain.
    fn drop(&mut self) {
        if let Some(queue) = self.0 {
            let mut queue = queue.lock();
            queue.batches -= 1;
            queue.waiting.clear();
        }
    }
}

/// What a batch writes.
#[derive(Default)]
struct AccountChanges {
    balances: Vec<(KeyId, Credits)>,
    /// By key and number.
    leases: BTreeMap<(KeyId, i64), Lease>,
    results: HashMap<KeyId, TopUpResult>,
}

impl AccountChanges {
    /// Adds a top-up of a locked account, unless it takes more than writing the balance and leases.
    fn add(&mut self, context: &Context, request: &TopUpRequest, account: CreditAccount) {
        let now = leases::refill_time(context, account.database_time);
        let replica = LeaseHolder { id: &context.replica_id, region: context.own_region() };
        let has_leases = !account.leases.is_empty();
        let mut change = TopUpChange::new(account, request.observed, request.cost, replica, now);
        let (mut balance, mut leases) = (None, Vec::new());
        loop {
            match change.next_step() {
                AccountStep::End => break,
                AccountStep::UpdateBalance(credits) => balance = Some(*credits),
                AccountStep::UpsertLease(lease) => leases.push(lease.clone()),
                // A refill of an account without leases.
                AccountStep::ForfeitLeases if !has_leases => {}
                AccountStep::ForfeitLeases
                | AccountStep::CloseLease { .. }
                | AccountStep::DeleteLease(_) => return,
            }
        }
        let key = &request.key;
        self.balances.extend(balance.map(|credits| (key.clone(), credits)));
        let leases = leases.into_iter();
        self.leases.extend(leases.map(|lease| ((key.clone(), lease.lease_number), lease)));
        self.results.insert(key.clone(), change.result());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credits::top_up::LeaseProblem;

    type Reply = oneshot::Receiver<Result<Option<TopUpResult>>>;

    fn request(key: usize) -> (TopUpRequest, Reply) {
        let (reply_sender, reply) = oneshot::channel();
        let observed = LeaseObservation {
            lease_number: 1,
            redis_generation: 1,
            units: 0,
            spent: 0,
            problem: LeaseProblem::Insufficient,
        };
        let key = KeyId::from(format!("key_{key}").as_str());
        (TopUpRequest { key, observed, cost: 1, reply_sender }, reply)
    }

    #[test]
    fn two_callers_run_batches_and_others_wait_for_them() {
        let mut queue = Queue::default();
        let (requests, _replies): (Vec<_>, Vec<_>) = (0..300).map(request).unzip();

        let runs: Vec<_> =
            requests.into_iter().map(|request| queue.add(request, BATCHES_MAX)).collect();

        assert_eq!(runs.iter().filter(|runs| **runs).count(), BATCHES_MAX);
        assert!(runs[..BATCHES_MAX].iter().all(|runs| *runs));
        let batches: Vec<_> = (0..4).map(|_| queue.next_batch().map(|batch| batch.len())).collect();
        assert_eq!(batches, [Some(BATCH_TOP_UPS_MAX), Some(300 - BATCH_TOP_UPS_MAX), None, None]);
        assert!(queue.add(request(300).0, BATCHES_MAX), "both have ended");
    }

    #[test]
    fn waiting_top_ups_fail_when_a_task_is_dropped() {
        let queue = Mutex::new(Queue::default());
        let (first, _reply) = request(0);
        queue.lock().add(first, BATCHES_MAX);
        let mut runner = BatchRunner(Some(&queue));
        assert_eq!(runner.next_batch().map(|batch| batch.len()), Some(1));
        let (second, mut reply) = request(1);
        queue.lock().add(second, BATCHES_MAX);

        drop(runner);

        assert!(matches!(reply.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert_eq!(queue.lock().batches, 1, "the one of the second caller");
    }

    #[test]
    fn batch_leaves_out_callers_that_have_stopped_waiting() {
        let mut queue = Queue::default();
        let (requests, mut replies): (Vec<_>, Vec<_>) = (0..4).map(request).unzip();
        for request in requests {
            queue.add(request, BATCHES_MAX);
        }
        replies.drain(1..3);

        let batch = queue.next_batch().into_iter().flatten();
        let keys: Vec<_> = batch.map(|request| request.key).collect();

        assert_eq!(keys, [KeyId::from("key_0"), KeyId::from("key_3")]);
    }
}
