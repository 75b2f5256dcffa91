//! Spending from the credit lease of a key, which is topped up from its account.

use std::time::Duration;

use foundation::clock::{Monotonic, Stopwatch};
use foundation::error::{Error, Result};
use foundation::id::KeyId;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use limiter::redis::{RedisCounters, UnresolvedRequest};
use limiter::{ConsumeRequest, LeaseSpend, LeaseStatus, TopUp, Window};
use store::with_timeout;

use super::balance::{is_balance_unknown, load_balance};
use super::lease_spend::LeaseRef;
use super::leases;
use super::retries::{CONNECTION_TIMEOUT, LOCKED_ACCOUNT_TIMEOUT, LockRetry};
use super::top_up::{LeaseObservation, LeaseProblem};
use super::top_up_attempts::{AfterTopUp, Attempt, TopUpAttempts};
use super::{
    ConsumeDecision, CreditLedger, LOCK_WAIT, PATIENT_LOCK_WAIT, SCRIPT_BALANCE_MAX, capped_debit,
    consume_without_account, direct_debit,
};
use crate::admission::LimitDecision;
use crate::resolved_key::KeyCredits;

/// Consumes `cost` credits and all `windows`, or nothing, with the lease of a key that has these credits. Debits the
/// account if Redis is unreachable.
pub async fn consume(
    ledger: &CreditLedger,
    credits: &KeyCredits,
    windows: Vec<Window>,
    cost: i64,
) -> Result<ConsumeDecision> {
    let (key, since) = (&credits.key_id, Stopwatch::new());
    let redis = ledger.context.redis.as_ref().filter(|_| ledger.context.is_registered());
    let Some(redis) = redis else {
        // A replica that is not registered yet may use Redis soon: only an open circuit breaker is an outage.
        let since = ledger
            .context
            .redis
            .as_ref()
            .is_some_and(RedisCounters::is_breaker_open)
            .then_some(&since);
        return Box::pin(direct_debit::consume(ledger, key, &windows, cost, since, None)).await;
    };
    let unsettled = None;
    let mut request = MeteredConsume { ledger, redis, credits, key, cost, windows, unsettled };
    match request.run().await {
        Err(cause) if cause.is_redis_outage() => {
            // The balance that the lease reports after the outage is stale.
            credits.lease_hint.mark_balance_stale();
            let (windows, unsettled) = (&request.windows, request.unsettled);
            Box::pin(direct_debit::consume(ledger, key, windows, cost, Some(&since), unsettled))
                .await
        }
        outcome => outcome,
    }
}

/// A consume request for a metered key, which may need top-ups.
struct MeteredConsume<'a> {
    ledger: &'a CreditLedger,
    redis: &'a RedisCounters,
    credits: &'a KeyCredits,
    key: &'a KeyId,
    cost: i64,
    windows: Vec<Window>,
    /// What Redis may still apply after it has not replied in time.
    unsettled: Option<UnresolvedRequest>,
}

impl MeteredConsume<'_> {
    async fn run(&mut self) -> Result<ConsumeDecision> {
        let lease = self.last_known_lease();
        let first = self.try_consume(lease, None).await?;
        match self.find_problem(&first) {
            None => self.build_decision(&first).await,
            // Boxed: this path is rare, and its future is large.
            Some(problem) => self.run_locked(lease, first, problem).boxed().await,
        }
    }

    /// Tops up under the lock of the key. Without it, each of many concurrent requests at an empty lease would debit
    /// a top-up.
    async fn run_locked(
        &mut self,
        lease: LeaseRef,
        last: Attempt,
        problem: LeaseProblem,
    ) -> Result<ConsumeDecision> {
        let ledger = self.ledger;
        let mut lock = ledger.top_up_locks.for_key(self.key);
        let has_waited = lock.wait().await?;
        let running = self.run_with_top_ups(has_waited, lease, last, problem);
        running.await.map_err(|cause| lock.fail(cause))
    }

    /// Tops up until the lease holds enough or the account is exhausted.
    async fn run_with_top_ups(
        &mut self,
        has_waited: bool,
        mut lease: LeaseRef,
        mut last: Attempt,
        mut problem: LeaseProblem,
    ) -> Result<ConsumeDecision> {
        if has_waited {
            // The previous owner of the lock may have topped up the lease.
            lease = self.last_known_lease();
            last = self.try_consume(lease, None).await?;
            match self.find_problem(&last) {
                Some(found) => problem = found,
                None => return self.build_decision(&last).await,
            }
        }
        let mut attempts = TopUpAttempts::default();
        while !attempts.are_exhausted() {
            let status = last.lease_status;
            let LeaseStatus { redis_generation, units, spent_units: spent, .. } = status;
            let observed = LeaseObservation {
                lease_number: lease.lease_number,
                redis_generation,
                units,
                spent,
                problem,
            };
            let mark_generation = self.ledger.lease_spend.mark_generation();
            let Self { ledger, key, cost, .. } = *self;
            let top_up = |wait| leases::top_up(&ledger.context, key, observed, cost, wait).boxed();
            let together = match ledger.direct_debits.connections.available_permits() {
                0 => ledger.top_up_batches.top_up(key, observed, cost).await?,
                _ => None,
            };
            let result = match together {
                Some(result) => result,
                None => retry_while_locked(ledger, top_up).await?,
            };
            let top_up = match attempts.apply_top_up(result) {
                AfterTopUp::ConsumeWithoutAccount => {
                    let windows = std::mem::take(&mut self.windows);
                    return consume_without_account(&self.ledger.context, self.key, windows).await;
                }
                AfterTopUp::DebitAccount { closes_lease } => {
                    return self.debit_account(closes_lease).await;
                }
                AfterTopUp::Consume { lease_number, top_up, pause } => {
                    lease = LeaseRef { lease_number, generation: mark_generation };
                    sleep_if_some(pause).await;
                    top_up
                }
            };
            let hint = &self.credits.lease_hint;
            hint.record_top_up(lease.lease_number, mark_generation, Monotonic::now());
            last = self.try_consume(lease, Some(top_up)).await?;
            match self.find_problem(&last) {
                Some(found) => problem = found,
                None => return self.build_decision(&last).await,
            }
            sleep_if_some(attempts.record_problem(&mut problem, last.lease_status.state)).await;
        }
        self.debit_account(true).await
    }

    /// Debits the account itself.
    async fn debit_account(&self, closes_lease: bool) -> Result<ConsumeDecision> {
        // Boxed: this path is rare, and its future is large.
        let Self { ledger, redis, key, cost, windows, .. } = self;
        let debit = |wait| {
            capped_debit::consume(ledger, redis, key, windows, *cost, closes_lease, wait).boxed()
        };
        retry_while_locked(ledger, debit).await
    }

    /// Returns the lease that the account reported last. Before the first report, that is the last lease number in
    /// the key's row, which is the lease in use unless the balance has been moved since.
    fn last_known_lease(&self) -> LeaseRef {
        match self.credits.lease_hint.last_lease() {
            (0, mark_generation) => LeaseRef {
                lease_number: self.credits.account.last_lease_number,
                generation: mark_generation,
            },
            (lease_number, mark_generation) => {
                LeaseRef { lease_number, generation: mark_generation }
            }
        }
    }

    async fn try_consume(&mut self, lease: LeaseRef, top_up: Option<TopUp>) -> Result<Attempt> {
        let lease_number = lease.lease_number;
        let lease_key = self.ledger.context.keyspace.lease(self.key.as_str(), lease_number);
        let spend = LeaseSpend { lease: lease_key, cost: self.cost, top_up };
        let request = ConsumeRequest::with_spend(std::mem::take(&mut self.windows), spend);
        let reply = self.redis.consume(&request, self.ledger.context.clock.fixed_time()).await;
        self.windows = request.windows;
        let reply = reply.map_err(|missed| {
            self.unsettled = missed.unresolved;
            missed.cause
        })?;
        let status = reply.lease.ok_or_else(|| Error::Internal("no lease in the reply".into()))?;
        let is_trusted = status.account_balance.is_none()
            || self.ledger.lease_spend.record_spend(self.key, lease, status.spent_units);
        Ok(Attempt::new(reply, status, top_up, is_trusted))
    }

    fn find_problem(&self, attempt: &Attempt) -> Option<LeaseProblem> {
        let hint = &self.credits.lease_hint;
        attempt.find_problem(&self.windows, self.cost, hint, Monotonic::now)
    }

    async fn load_balance(&self) -> Result<Option<i64>> {
        if !self.ledger.context.freshness.is_database_reachable(Monotonic::now()) {
            return Err(Error::StoreNotReady);
        }
        with_timeout(CONNECTION_TIMEOUT, Box::pin(load_balance(&self.ledger.context, self.key)))
            .await
    }

    async fn build_decision(
        &self,
        Attempt { reply, lease_status: status, .. }: &Attempt,
    ) -> Result<ConsumeDecision> {
        let known = status
            .account_balance
            .filter(|balance| *balance < SCRIPT_BALANCE_MAX && !is_balance_unknown(status));
        let left = known.map(|balance| status.units.saturating_add(balance));
        let credits = match left.filter(|_| !self.credits.lease_hint.is_balance_stale()) {
            Some(left) => Some(left),
            None => match self.load_balance().await {
                // The credits are spent: the decision does not depend on how exactly the remaining balance is known.
                Err(cause) if cause.is_outage() => {
                    Some(left.unwrap_or(self.credits.account.balance))
                }
                credits => credits?,
            },
        };
        Ok(ConsumeDecision::from_limit_decision(
            LimitDecision::from_reply(reply, &self.windows),
            credits,
        ))
    }
}

/// Runs a transaction on one of the connections reserved for debits, and retries it while its account is locked, for
/// at most [`LOCKED_ACCOUNT_TIMEOUT`]. The transaction receives how long it may wait for the lock.
async fn retry_while_locked<'a, T>(
    ledger: &CreditLedger,
    transaction: impl Fn(Duration) -> BoxFuture<'a, Result<T>> + Send,
) -> Result<T> {
    let mut retry = LockRetry::new(Monotonic::now(), LOCKED_ACCOUNT_TIMEOUT);
    let mut is_retried = false;
    loop {
        // A few stay in the queue for the lock, which is served in order: others might take it during every pause.
        let patience = is_retried.then(|| ledger.patient_debits.try_acquire().ok()).flatten();
        let lock_wait = if patience.is_some() { PATIENT_LOCK_WAIT } else { LOCK_WAIT };
        let connection = ledger.direct_debits.connections.acquire();
        let connection = async { connection.await.map_err(|_| Error::StoreNotReady) };
        let connection = with_timeout(CONNECTION_TIMEOUT, connection).await?;
        let result = transaction(lock_wait).await;
        let is_locked = result.as_ref().is_err_and(Error::is_lock_timeout);
        let pause = is_locked.then(|| retry.next_pause(Monotonic::now())).flatten();
        let Some(pause) = pause else { return result };
        drop((connection, patience));
        tokio::time::sleep(pause).await;
        is_retried = true;
    }
}
async fn sleep_if_some(pause: Option<Duration>) {
    if let Some(pause) = pause {
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use foundation::clock::Clock;
    use foundation::config::{Config, Deployment};
    use foundation::model::Credits;

    use super::*;
    use crate::context::Context;

    /// Returns a registered replica whose Redis accepts connections and never replies, and whose debits are not served.
    fn create_ledger(redis: &TcpListener) -> CreditLedger {
        let mut settings = Config::default().validate().expect("valid settings");
        // A test has few keys.
        settings.cache_bytes_max = 1 << 20;
        settings.deployment = Deployment::Replica {
            database_url: "postgres://127.0.0.1:1/none".into(),
            redis_url: format!("redis://{}", redis.local_addr().expect("an address")),
        };
        let (context, _announcements) = Context::new(settings, Clock::System).expect("a context");
        context.live_replicas.store(1, Ordering::Relaxed);
        CreditLedger::new(Arc::new(context))
    }

    fn key_credits() -> KeyCredits {
        let account =
            Credits { balance: 9, last_lease_number: 1, refill: None, refilled_period: 0 };
        KeyCredits::new(KeyId::from("key_a"), account)
    }

    #[tokio::test]
    async fn balance_that_the_lease_reports_is_stale_after_a_debit_without_redis() {
        let redis = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (ledger, credits) = (create_ledger(&redis), key_credits());

        let decision = consume(&ledger, &credits, Vec::new(), 1).await;

        assert!(matches!(decision, Err(Error::DebitTimeout)), "{decision:?}");
        assert!(credits.lease_hint.is_balance_stale());
    }

    #[tokio::test]
    async fn request_that_redis_may_still_apply_is_unsettled() {
        let redis = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (ledger, credits) = (create_ledger(&redis), key_credits());
        let mut request = MeteredConsume {
            ledger: &ledger,
            redis: ledger.context.redis.as_ref().expect("a Redis"),
            credits: &credits,
            key: &credits.key_id,
            cost: 1,
            windows: vec![Window::new("w", 10, 1_000, 1)],
            unsettled: None,
        };

        let outcome = request.run().await;

        assert!(outcome.is_err_and(|cause| cause.is_redis_outage()));
        assert!(request.unsettled.is_some());
        assert_eq!(request.windows.len(), 1);
    }
}
