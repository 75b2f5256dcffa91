//! Spending of credits from credit accounts and credit leases.
//!
//! The database holds the credit account, which alone owns the balance of a key. Requests spend from a credit lease
//! in Redis. It holds credits that were debited from the account, durably, before any replica may spend them. A lease
//! is valid for one Redis generation, so no crash or failover lets a credit be spent twice. Without Redis, the
//! account itself is debited: see [`direct_debit`].

mod balance;
mod capped_debit;
mod closing;
mod debit_queue;
mod direct_debit;
mod journal;
mod lease_spend;
mod leases;
mod top_up_locks;
mod withheld;

use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::error::{Error, Result};
use foundation::id::KeyId;
use foundation::model::Credits;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use limiter::redis::{RedisCounters, UnresolvedRequest};
use limiter::{
    ConsumeReply, ConsumeRequest, GroupChange, LeaseSpend, LeaseState, LeaseStatus, TopUp, Window,
    WindowStatus,
};
use store::with_timeout;

use self::balance::load_balance;
use self::lease_spend::LeaseRef;
use self::leases::{LeaseObservation, LeaseProblem, TopUpResult};
use crate::admission::{self, LimitDecision};
use crate::context::Context;
use crate::resolved_key::ResolvedKey;

pub use self::balance::{get_balance, get_known_balance, list_balances};
pub use self::closing::{
    close_for_change, close_idle_leases, close_outdated, close_own_leases, run_with_closed_leases,
};
pub use self::debit_queue::{DEBIT_QUEUE_MAX, DirectDebits, run as serve_debits};
pub use self::lease_spend::LeaseSpendTracker;
pub use self::leases::refill_time;
pub use self::top_up_locks::TopUpLocks;
pub use self::withheld::{
    deregister_silent_replicas, list_withheld, prune_closed_leases, release_withheld,
    report_and_deregister, report_and_sweep_all, report_lost_leases, sum_withheld,
};

/// Balances from this value on are loaded from the account: a script counts in doubles and cannot report them
/// exactly.
const SCRIPT_BALANCE_MAX: i64 = (1 << 53) - 1;
/// The maximum number of top-ups for one request while other replicas drain the lease first.
const TOP_UP_ATTEMPTS_MAX: u8 = 8;
/// How often a request waits, and for how long each time, for a lease that another replica has opened but Redis does
/// not have yet, or for top-ups of other replicas that are in flight. Afterwards they count as lost.
const IN_FLIGHT_RETRIES_MAX: u8 = 4;
const IN_FLIGHT_PAUSE: Duration = Duration::from_millis(3);
/// How long a top-up waits for a database connection, and for the account.
const ACCOUNT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a top-up waits for a locked account while it holds a connection; then the first and the longest pause
/// without one. Therefore many locked accounts do not occupy all connections.
const LOCK_WAIT: Duration = Duration::from_millis(20);
const LOCK_PAUSE_MIN: Duration = Duration::from_millis(20);
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(160);
/// How long after the last top-up a lease's report that the account is exhausted is trusted.
const EXHAUSTED_TTL_MS: i64 = 1_000;

/// Spends credits. It knows what this process has spent from leases and which debits wait.
pub struct CreditLedger {
    pub context: Arc<Context>,
    top_up_locks: TopUpLocks,
    /// Debits of accounts in the database that wait for their turn.
    direct_debits: DirectDebits,
    /// The credits that this process has spent from leases.
    lease_spend: LeaseSpendTracker,
}

impl CreditLedger {
    /// Creates a service that has spent nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        let direct_debits = DirectDebits::new(&context.settings);
        Self {
            context,
            top_up_locks: TopUpLocks::default(),
            direct_debits,
            lease_spend: LeaseSpendTracker::default(),
        }
    }

    /// Returns the current mark generation; see [`LeaseSpendTracker`].
    pub fn mark_generation(&self) -> u64 {
        self.lease_spend.mark_generation()
    }
}

/// The result of consuming windows and credits together.
#[derive(Debug)]
pub struct ConsumeDecision {
    pub is_admitted: bool,
    pub window_statuses: Vec<WindowStatus>,
    /// The remaining credits of account and lease together. `None` for an unlimited key.
    pub credits: Option<i64>,
    /// Whether it was decided without Redis.
    pub is_degraded: bool,
    /// How the group of the windows has changed.
    pub group_change: GroupChange,
    /// Whether the key has been deleted. Then nothing was consumed.
    pub is_key_deleted: bool,
}

impl ConsumeDecision {
    fn from_limit_decision(decision: LimitDecision, credits: Option<i64>) -> Self {
        let LimitDecision { is_admitted, statuses, is_degraded, group_change: group } = decision;
        Self {
            is_admitted,
            window_statuses: statuses,
            credits,
            is_degraded,
            group_change: group,
            is_key_deleted: false,
        }
    }
}

/// Consumes `cost` credits and all `windows`, or nothing. This is one Redis call, and no database call while the
/// lease holds enough.
pub async fn consume(
    ledger: &CreditLedger,
    resolved: &ResolvedKey,
    windows: Vec<Window>,
    cost: i64,
) -> Result<ConsumeDecision> {
    match resolved.stored().key.credits {
        None => consume_unmetered(&ledger.context, windows).await,
        // Boxed, so that the future of a key without credits stays small.
        Some(credits) => Box::pin(consume_metered(ledger, resolved, credits, windows, cost)).await,
    }
}

/// Consumes all `windows`, or nothing, for a key that turns out to have no account: the caller's copy of the key is
/// stale.
async fn consume_without_account(
    context: &Context,
    key: &KeyId,
    windows: Vec<Window>,
) -> Result<ConsumeDecision> {
    if context.store.read().await?.has_key(key).await? {
        return consume_unmetered(context, windows).await;
    }
    let decision = LimitDecision {
        is_admitted: false,
        statuses: Vec::new(),
        is_degraded: false,
        group_change: GroupChange::None,
    };
    Ok(ConsumeDecision {
        is_key_deleted: true,
        ..ConsumeDecision::from_limit_decision(decision, None)
    })
}

async fn consume_unmetered(context: &Context, windows: Vec<Window>) -> Result<ConsumeDecision> {
    if windows.is_empty() {
        let decision = LimitDecision {
            is_admitted: true,
            statuses: Vec::new(),
            is_degraded: false,
            group_change: GroupChange::None,
        };
        return Ok(ConsumeDecision::from_limit_decision(decision, None));
    }
    let decision =
        admission::consume_exact(context, windows, context.settings.keys_outage_policy).await?;
    Ok(ConsumeDecision::from_limit_decision(decision, None))
}

async fn consume_metered(
    ledger: &CreditLedger,
    resolved: &ResolvedKey,
    credits: Credits,
    windows: Vec<Window>,
    cost: i64,
) -> Result<ConsumeDecision> {
    let (key, since) = (&resolved.stored().key.id, Stopwatch::new());
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
    let mut request =
        MeteredConsume { ledger, redis, resolved, key, cost, windows, credits, unsettled };
    match request.run().await {
        Err(cause) if cause.is_redis_outage() => {
            // The balance that the lease reports after the outage is stale.
            resolved.lease_hint.mark_balance_stale();
            let (windows, unsettled) = (&request.windows, request.unsettled);
            Box::pin(direct_debit::consume(ledger, key, windows, cost, Some(&since), unsettled))
                .await
        }
        outcome => outcome,
    }
}

/// The result of one attempt to consume.
struct Attempt {
    reply: ConsumeReply,
    lease_status: LeaseStatus,
    /// The part of the top-up that was not added to the lease.
    not_added: i64,
}

/// A consume request for a metered key, which may need top-ups.
struct MeteredConsume<'a> {
    ledger: &'a CreditLedger,
    redis: &'a RedisCounters,
    resolved: &'a ResolvedKey,
    key: &'a KeyId,
    cost: i64,
    windows: Vec<Window>,
    /// The account as the key's row has it.
    credits: Credits,
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
        for attempt in 0..TOP_UP_ATTEMPTS_MAX {
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
            let Self { ledger, redis, key, cost, .. } = *self;
            let top_up = || leases::top_up(&ledger.context, redis, key, observed, cost).boxed();
            let top_up = match retry_while_locked(self.ledger, top_up).await? {
                TopUpResult::Unmetered => {
                    let windows = std::mem::take(&mut self.windows);
                    return consume_without_account(&self.ledger.context, self.key, windows).await;
                }
                TopUpResult::Withheld => return self.debit_account(false).await,
                TopUpResult::TopUpsInFlight(..) if attempt >= IN_FLIGHT_RETRIES_MAX => {
                    return self.debit_account(true).await;
                }
                TopUpResult::TopUpsInFlight(lease_number, top_up) => {
                    lease = LeaseRef { lease_number, generation: mark_generation };
                    tokio::time::sleep(IN_FLIGHT_PAUSE).await;
                    top_up
                }
                TopUpResult::Lease(lease_number, top_up) => {
                    lease = LeaseRef { lease_number, generation: mark_generation };
                    top_up
                }
            };
            self.resolved.lease_hint.record_top_up(lease.lease_number, mark_generation);
            last = self.try_consume(lease, Some(top_up)).await?;
            match self.find_problem(&last) {
                Some(found) => problem = found,
                None => return self.build_decision(&last).await,
            }
            if let LeaseProblem::TopUpRejected { is_lost, .. } = &mut problem
                && last.lease_status.state == LeaseState::NotFound
            {
                // Another replica may have opened the lease just now, and its top-up is in flight.
                *is_lost = attempt >= IN_FLIGHT_RETRIES_MAX;
                tokio::time::sleep(IN_FLIGHT_PAUSE).await;
            }
        }
        self.debit_account(true).await
    }

    /// Debits the account itself.
    async fn debit_account(&self, closes_lease: bool) -> Result<ConsumeDecision> {
        // Boxed: this path is rare, and its future is large.
        let Self { ledger, redis, key, cost, windows, .. } = self;
        let debit =
            || capped_debit::consume(ledger, redis, key, windows, *cost, closes_lease).boxed();
        retry_while_locked(ledger, debit).await
    }

    /// Returns the lease that the account reported last. Before the first report, that is the last lease number in
    /// the key's row, which is the lease in use unless the balance has been moved since.
    fn last_known_lease(&self) -> LeaseRef {
        match self.resolved.lease_hint.last_lease() {
            (0, mark_generation) => LeaseRef {
                lease_number: self.credits.last_lease_number,
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
        let request =
            ConsumeRequest { windows: std::mem::take(&mut self.windows), spend: Some(spend) };
        let reply = self.redis.consume(&request, self.ledger.context.clock.fixed_time()).await;
        self.windows = request.windows;
        let reply = reply.map_err(|missed| {
            self.unsettled = missed.unresolved;
            missed.cause
        })?;
        let mut status =
            reply.lease.ok_or_else(|| Error::Internal("no lease in the reply".into()))?;
        let not_added = match status.state {
            LeaseState::Closed | LeaseState::WrongGeneration | LeaseState::NotFound => {
                top_up.map_or(0, |top_up| top_up.top_up)
            }
            LeaseState::Sufficient | LeaseState::Insufficient | LeaseState::AccountExhausted => 0,
        };
        if status.account_balance.is_some()
            && !self.ledger.lease_spend.record_spend(self.key, lease, status.spent_units)
        {
            // The lease has been reported as lost, so this result does not count. A top-up that was added is lost
            // with it, because other replicas may still spend it.
            status.state = LeaseState::Closed;
        }
        Ok(Attempt { reply, lease_status: status, not_added })
    }

    /// Returns the problem to solve at the account, if the request failed for a lack of something that the account
    /// can provide.
    fn find_problem(
        &self,
        Attempt { reply, lease_status: status, not_added }: &Attempt,
    ) -> Option<LeaseProblem> {
        let top_up = *not_added;
        let is_admitted =
            reply.windows.iter().zip(&self.windows).all(|(count, w)| count.is_within_limit(w));
        match status.state {
            // A top-up that was not added returns to the account, whatever else the result is.
            LeaseState::WrongGeneration | LeaseState::NotFound => {
                Some(LeaseProblem::TopUpRejected { block: top_up, is_lost: false })
            }
            LeaseState::Closed if top_up > 0 => Some(LeaseProblem::Closed { block: top_up }),
            _ if !is_admitted || self.cost == 0 => None,
            LeaseState::Sufficient => None,
            LeaseState::Insufficient => Some(LeaseProblem::Insufficient),
            LeaseState::Closed => Some(LeaseProblem::Closed { block: top_up }),
            LeaseState::AccountExhausted => self
                .resolved
                .lease_hint
                .is_top_up_older_than(EXHAUSTED_TTL_MS)
                .then_some(LeaseProblem::Insufficient),
        }
    }

    async fn load_balance(&self) -> Result<Option<i64>> {
        if !self.ledger.context.freshness.is_database_reachable() {
            return Err(Error::StoreNotReady);
        }
        with_timeout(
            ACCOUNT_TIMEOUT,
            Box::pin(load_balance(&self.ledger.context, self.redis, self.key)),
        )
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
        let credits = match left.filter(|_| !self.resolved.lease_hint.is_balance_stale()) {
            Some(left) => Some(left),
            None => match self.load_balance().await {
                // The credits are spent: the decision does not depend on how exactly the remaining balance is known.
                Err(cause) if cause.is_outage() => Some(left.unwrap_or(self.credits.balance)),
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
/// at most [`ACCOUNT_TIMEOUT`].
async fn retry_while_locked<'a, T>(
    ledger: &CreditLedger,
    transaction: impl Fn() -> BoxFuture<'a, Result<T>> + Send,
) -> Result<T> {
    let (began, mut pause) = (Stopwatch::new(), LOCK_PAUSE_MIN);
    loop {
        let connection = ledger.direct_debits.connections.acquire();
        let connection = async { connection.await.map_err(|_| Error::StoreNotReady) };
        let connection = with_timeout(ACCOUNT_TIMEOUT, connection).await?;
        match transaction().await {
            Err(cause) if cause.is_lock_timeout() && began.elapsed() < ACCOUNT_TIMEOUT => {
                drop(connection);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LOCK_PAUSE_MAX);
            }
            result => return result,
        }
    }
}

/// Returns whether the balance in a lease status has no meaning any more.
fn is_balance_unknown(status: &LeaseStatus) -> bool {
    !matches!(status.state, LeaseState::Sufficient | LeaseState::AccountExhausted)
}
