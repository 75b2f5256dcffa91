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
use super::retries::CONNECTION_TIMEOUT;
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
        let _connection = with_timeout(CONNECTION_TIMEOUT, connection).await?;
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

#[cfg(test)]
mod tests {
    use foundation::clock::{Clock, DAY_MS, Monotonic, Timestamp};
    use foundation::model::{Refill, RefillInterval};

    use super::*;
    use crate::credits::tests::embedded_context;
    use crate::credits::top_up::LeaseProblem;

    const OBSERVED: LeaseObservation = LeaseObservation {
        lease_number: 1,
        redis_generation: 7,
        units: 0,
        spent: 0,
        problem: LeaseProblem::Insufficient,
    };

    /// Returns the batches of a server whose store has not been opened.
    fn batches() -> TopUpBatches {
        TopUpBatches::new(embedded_context(Clock::System), Arc::new(Semaphore::new(1)))
    }

    #[test]
    fn more_batches_are_in_progress_when_the_database_is_far_away() {
        for (round_trip_ms, expected) in [(9, BATCHES_MAX), (10, FAR_BATCHES_MAX)] {
            let batches = batches();
            let round_trip = Duration::from_millis(round_trip_ms);

            batches.context.database_distance.record(round_trip, Monotonic::default());

            assert_eq!(batches.batches_max(), expected, "{round_trip_ms} ms");
        }
    }

    #[tokio::test]
    async fn top_up_fails_when_its_batch_does_not_reach_the_database() {
        let result = batches().top_up(&KeyId::from("key_a"), OBSERVED, 1).await;

        // It would reach the database no better in a transaction of its own.
        assert!(result.is_err_and(|cause| cause.is_outage()));
    }

    #[test]
    fn refill_joins_a_batch_unless_it_forfeits_leases() {
        let now = Timestamp(DAY_MS);
        let context = embedded_context(Clock::fixed_at(now));
        let refill = Some(Refill { interval: RefillInterval::Daily, amount: 1_000 });
        let credits = Credits { balance: 0, last_lease_number: 1, refill, refilled_period: 0 };
        // A batch could leave it as it is: it is in another Redis.
        let lease = Lease {
            lease_number: 1,
            redis_generation: 6,
            granted: 100,
            spent: 0,
            opened_at: now,
            topped_up_at: now,
            topped_up_by: "rep_b".into(),
            withheld_at: None,
            closed: false,
            region: String::new(),
        };
        let top_up = TopUp { key: KeyId::from("key_a"), observed: OBSERVED, cost: 1 };
        let add = |leases| {
            let mut changes = AccountChanges::default();
            let account = CreditAccount { credits, leases, database_time: now };
            changes.add(&context, &top_up, account);
            changes
        };

        let forfeiting = add(vec![lease]);
        assert!(forfeiting.results.is_empty() && forfeiting.balances.is_empty());
        assert!(forfeiting.leases.is_empty());

        let joining = add(Vec::new());
        let refilled =
            Credits { balance: 900, last_lease_number: 3, refilled_period: 1, ..credits };
        assert_eq!(joining.balances, [(top_up.key.clone(), refilled)]);
        let granted = |lease: &Lease| (lease.lease_number, lease.granted);
        assert_eq!(joining.leases.values().map(granted).collect::<Vec<_>>(), [(3, 100)]);
        assert!(matches!(joining.results.get(&top_up.key), Some(TopUpResult::Lease(3, _))));
    }
}
