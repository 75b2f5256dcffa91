//! Top-ups that are debited together. A commit, and each statement before it, costs the database about the same for one
//! account as for many, and many keys may need a lease at once: after a restart of Redis, or at the start of a day.
//!
//! A top-up has its own transaction while one of the connections reserved for debits is free. Those of different keys that wait
//! for a connection share the next one: one transaction, with the same few statements for all its accounts. It waits for no
//! account if there are several. An account that another transaction has locked, and a top-up that also has to close a lease in
//! Redis, get a transaction of their own, so they delay only their own key.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use foundation::error::{Error, Result};
use foundation::id::KeyId;
use foundation::model::{CreditAccount, Credits, Lease};
use store::with_timeout;
use tokio::sync::Semaphore;

use super::closing_steps::AccountStep;
use super::retries::ACCOUNT_TIMEOUT;
use super::top_up::{LeaseObservation, TopUpChange, TopUpResult};
use super::{LOCK_WAIT, leases};
use crate::batches::{BatchQueue, BatchRequest, BatchRunner};
use crate::context::{Context, LeaseHolder};

/// The maximum number of batches in progress while the database is near: one is decided while the other one is committed.
const BATCHES_MAX: usize = 2;
/// The maximum number while it is far away, where a batch mostly waits for the network.
const FAR_BATCHES_MAX: usize = 8;
/// How long a batch may take. It is not ended early: what was debited, but not added to a lease, is out of use until the
/// lease is closed.
const BATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The top-ups of a process that wait. The answer is `None` if one needs a transaction of its own.
#[derive(Clone)]
pub struct TopUpBatches {
    context: Arc<Context>,
    /// Limits the connections that debits use at the same time.
    connections: Arc<Semaphore>,
    queue: BatchQueue<TopUp, Option<TopUpResult>>,
}

struct TopUp {
    key: KeyId,
    observed: LeaseObservation,
    cost: i64,
}

type TopUpRequest = BatchRequest<TopUp, Option<TopUpResult>>;
type TopUpRunner = BatchRunner<TopUp, Option<TopUpResult>>;

impl TopUpBatches {
    pub fn new(context: Arc<Context>, connections: Arc<Semaphore>) -> Self {
        Self { context, connections, queue: BatchQueue::default() }
    }

    /// Debits a top-up from the account of a key, for a request of this cost; see [`TopUpChange`]. Returns `None`, and has
    /// changed nothing, if it needs a transaction of its own.
    pub async fn top_up(
        &self,
        key: &KeyId,
        observed: LeaseObservation,
        cost: i64,
    ) -> Result<Option<TopUpResult>> {
        let top_up = TopUp { key: key.clone(), observed, cost };
        // A task of its own: a caller that stops waiting must not end the top-ups of others.
        let run = |runner| drop(tokio::spawn(self.clone().run(runner)));
        self.queue.ask(top_up, self.batches_max(), run).await
    }

    fn batches_max(&self) -> usize {
        if self.context.is_database_far() { FAR_BATCHES_MAX } else { BATCHES_MAX }
    }

    /// Debits batches until no top-up waits.
    async fn run(self, mut runner: TopUpRunner) {
        while let Some(batch) = runner.next_batch() {
            match self.debit_on_connection(&batch).await {
                Ok(mut results) => {
                    for request in batch {
                        // Each result once: a top-up is added to a lease once.
                        let result = results.remove(&request.question.key);
                        request.reply(Ok(result));
                    }
                }
                Err(cause) if cause.is_lock_timeout() => {
                    for request in batch {
                        request.reply(Ok(None));
                    }
                }
                Err(cause) => runner.reject(batch, cause),
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
        let mut keys: Vec<_> = batch.iter().map(|request| request.question.key.clone()).collect();
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
            if let Some(account) = accounts.remove(&request.question.key)
                && !request.is_abandoned()
            {
                changes.add(context, &request.question, account);
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
    fn add(&mut self, context: &Context, top_up: &TopUp, account: CreditAccount) {
        let now = leases::refill_time(context, account.database_time);
        let replica = LeaseHolder { id: &context.replica_id, region: context.own_region() };
        let has_leases = !account.leases.is_empty();
        let mut change = TopUpChange::new(account, top_up.observed, top_up.cost, replica, now);
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
        let key = &top_up.key;
        self.balances.extend(balance.map(|credits| (key.clone(), credits)));
        let leases = leases.into_iter();
        self.leases.extend(leases.map(|lease| ((key.clone(), lease.lease_number), lease)));
        self.results.insert(key.clone(), change.result());
    }
}
