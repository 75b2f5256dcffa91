//! Debits of accounts themselves, as `credits::capped_debit`, `credits::direct_debit` and `credits::debit_queue` make
//! them.

use std::sync::Arc;
use std::time::Duration;

use domain::admission::{ConsumeMode, LimitDecision};
use domain::credits::closing_steps::CloseScope;
use domain::credits::debit_balance;
use domain::credits::debit_batching::{EnqueueResult, FinishResult};
use foundation::clock::Monotonic;
use foundation::error::{Error, Result};
use foundation::id::KeyId;
use futures_util::future::BoxFuture;
use limiter::GroupChange;
use tokio::sync::oneshot;

use super::database::Tx;
use super::redis::REDIS_TIMEOUT;
use super::replica::{LOCK_WAIT, Replica, Request};
use crate::executor::{lock, now};

const ANSWER_TIMEOUT: Duration = Duration::from_millis(50);
const BATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// A direct debit, and the channel for its answer.
pub struct Debit {
    request: Request,
    reply_sender: oneshot::Sender<Result<bool>>,
}

impl Replica {
    /// Debits the account itself, although Redis is reachable.
    pub async fn debit_account(&self, request: &Request, closes_lease: bool) -> Result<bool> {
        let debit = || -> BoxFuture<'_, _> {
            Box::pin(async move {
                let key = &request.key;
                let tx = self.database.begin_within(LOCK_WAIT).await?;
                let mut account = tx.lock_account(key).await?;
                if closes_lease || account.credits.balance < request.cost {
                    self.close_account_leases(&tx, key, &mut account, CloseScope::All).await?;
                }
                let balance = &mut account.credits.balance;
                let is_admitted = debit_balance(balance, request.cost, decide_windows).is_admitted;
                tx.update_balance(key, &account.credits).await?;
                if is_admitted {
                    self.record_spend_at_commit(&tx, request).await?;
                }
                tx.commit().await?;
                if is_admitted {
                    self.outdated_accounts.record([key.clone()]);
                }
                Ok(is_admitted)
            })
        };
        self.retry_while_locked(debit).await
    }

    async fn record_spend_at_commit(&self, tx: &Tx, request: &Request) -> Result<()> {
        let (checker, request) = (self.checker.clone(), request.clone());
        tx.write(move |_, _| lock(&checker).record_spend(&request)).await
    }

    /// Debits the account without Redis. With `since`, when the request began, the answer has a deadline.
    pub async fn debit_directly(
        self: &Arc<Self>,
        request: &Request,
        since: Option<Monotonic>,
    ) -> Result<bool> {
        let (reply_sender, reply) = oneshot::channel();
        let (debit, id) =
            (Debit { request: request.clone(), reply_sender }, Some(request.key.clone()));
        let queued = lock(&self.debit_queues).enqueue(&id, debit, now());
        match queued {
            EnqueueResult::Waiting => {}
            EnqueueResult::Start(batch) => {
                let replica = self.clone();
                self.sim.spawn(self.node, replica.run_batches(request.key.clone(), batch));
            }
            EnqueueResult::Full(_) => return Err(Error::Overloaded("credits")),
            EnqueueResult::Locked(_) => return Err(Error::DebitTimeout),
        }
        let reply = match since {
            None => reply.await,
            Some(since) => {
                let left = ANSWER_TIMEOUT.saturating_sub(now().since(since).min(REDIS_TIMEOUT));
                self.sim.timeout(left, reply).await.ok_or(Error::DebitTimeout)?
            }
        };
        let is_admitted = reply.map_err(|_| Error::StoreNotReady)??;
        lock(&self.checker).summary.debited += u64::from(is_admitted);
        Ok(is_admitted)
    }

    async fn run_batches(self: Arc<Self>, key: KeyId, mut batch: Vec<Debit>) {
        loop {
            let is_locked = self.decide_and_reply(&key, batch).await;
            let finished =
                lock(&self.debit_queues).finish_batch(&Some(key.clone()), is_locked, now());
            match finished {
                FinishResult::Idle => return,
                FinishResult::Start(next) => batch = next,
                FinishResult::Locked(waiting) => return reject(waiting, || Error::DebitTimeout),
            }
        }
    }

    async fn decide_and_reply(&self, key: &KeyId, mut debits: Vec<Debit>) -> bool {
        debits.retain(|debit| !debit.reply_sender.is_closed());
        if debits.is_empty() {
            return false;
        }
        let decided = self.sim.timeout(BATCH_TIMEOUT, self.decide(key, &debits)).await;
        match decided.unwrap_or(Err(Error::StoreNotReady)) {
            Ok(outcomes) => {
                for (debit, outcome) in debits.into_iter().zip(outcomes) {
                    let _ = debit.reply_sender.send(outcome.ok_or(Error::StoreNotReady));
                }
                false
            }
            Err(cause) => {
                reject(debits, || Error::StoreNotReady);
                matches!(cause, Error::DebitTimeout)
            }
        }
    }

    /// Decides debits in their order and commits them.
    async fn decide(&self, key: &KeyId, debits: &[Debit]) -> Result<Vec<Option<bool>>> {
        let tx = self.database.begin_within(ANSWER_TIMEOUT).await?;
        let mut credits = tx.lock_account(key).await?.credits;
        let outcomes = debits.iter().map(|Debit { request, reply_sender }| {
            let balance = &mut credits.balance;
            let decide = || debit_balance(balance, request.cost, decide_windows).is_admitted;
            (!reply_sender.is_closed()).then(decide)
        });
        let outcomes: Vec<_> = outcomes.collect();
        let admitted = debits.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Some(true));
        for (debit, _) in admitted {
            self.record_spend_at_commit(&tx, &debit.request).await?;
        }
        if outcomes.contains(&Some(true)) {
            tx.update_balance(key, &credits).await?;
        }
        tx.commit().await?;
        self.outdated_accounts.record([key.clone()]);
        Ok(outcomes)
    }
}

/// Admits a request without windows.
fn decide_windows(_: ConsumeMode) -> LimitDecision {
    let (statuses, group_change) = (Vec::new(), GroupChange::None);
    LimitDecision { is_admitted: true, statuses, is_degraded: true, group_change }
}

fn reject(debits: Vec<Debit>, cause: impl Fn() -> Error) {
    for debit in debits {
        let _ = debit.reply_sender.send(Err(cause()));
    }
}
