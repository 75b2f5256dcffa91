//! Spending of credits from credit accounts and credit leases.
//!
//! The database holds the credit account, which alone owns the balance of a key. Requests spend from a credit lease
//! in Redis. It holds credits that were debited from the account, durably, before any replica may spend them. A lease
//! is valid for one Redis generation, so no crash or failover lets a credit be spent twice. Without Redis, the
//! account itself is debited: see [`direct_debit`].

mod balance;
mod capped_debit;
mod closing;
pub mod closing_steps;
pub mod debit_batching;
mod debit_queue;
mod direct_debit;
mod journal;
pub mod lease_spend;
mod leases;
pub mod metered;
mod preview;
pub mod retries;
pub mod top_up;
pub mod top_up_attempts;
mod top_up_batches;
mod top_up_locks;
mod withheld;

use std::sync::Arc;
use std::time::Duration;

use foundation::error::Result;
use foundation::id::KeyId;
use limiter::{GroupChange, Window, WindowStatus};
use tokio::sync::Semaphore;

use self::top_up_batches::TopUpBatches;
use crate::admission::{self, LimitDecision};
use crate::context::Context;
use crate::resolved_key::ResolvedKey;

pub use self::balance::{get_balance, get_known_balance, list_balances};
pub use self::closing::{
    close_for_change, close_idle_leases, close_outdated, close_own_leases, run_with_closed_leases,
};
pub use self::debit_batching::DEBIT_QUEUE_MAX;
pub use self::debit_queue::{DirectDebits, OutdatedAccounts, run as serve_debits};
pub use self::direct_debit::debit_balance;
pub use self::lease_spend::LeaseSpendTracker;
pub use self::leases::refill_time;
pub use self::preview::preview;
pub use self::top_up_locks::TopUpLocks;
pub use self::withheld::{
    deregister_silent_replicas, list_withheld, prune_closed_leases, release_withheld,
    report_and_deregister, report_and_sweep_all, report_lost_leases, sum_withheld,
};

/// Balances from this value on are loaded from the account: a script counts in doubles and cannot report them
/// exactly.
const SCRIPT_BALANCE_MAX: i64 = (1 << 53) - 1;
/// How long a top-up waits for a locked account while it holds a connection; then it pauses without one, see
/// [`LockRetry`](retries::LockRetry).
const LOCK_WAIT: Duration = Duration::from_millis(20);
/// How long one of a few waits that have found their account locked before, and how many they are.
const PATIENT_LOCK_WAIT: Duration = Duration::from_millis(300);
const PATIENT_DEBITS_MAX: usize = 2;

/// Spends credits. It knows what this process has spent from leases and which debits wait.
pub struct CreditLedger {
    pub context: Arc<Context>,
    top_up_locks: TopUpLocks,
    /// Debits of accounts for leases that wait for their turn.
    top_up_batches: TopUpBatches,
    /// Limits the connections on which debits wait for longer than [`LOCK_WAIT`].
    patient_debits: Semaphore,
    /// Debits of accounts in the database that wait for their turn.
    direct_debits: DirectDebits,
    /// The credits that this process has spent from leases.
    lease_spend: LeaseSpendTracker,
}

impl CreditLedger {
    /// Creates a service that has spent nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        let direct_debits = DirectDebits::new(&context.settings);
        let top_up_batches = TopUpBatches::new(context.clone(), direct_debits.connections.clone());
        Self {
            context,
            top_up_locks: TopUpLocks::default(),
            top_up_batches,
            patient_debits: Semaphore::new(PATIENT_DEBITS_MAX),
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
    match resolved.credits() {
        None => consume_unmetered(&ledger.context, windows).await,
        // Boxed, so that the future of a key without credits stays small.
        Some(credits) => Box::pin(metered::consume(ledger, credits, windows, cost)).await,
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

#[cfg(test)]
mod tests {
    use foundation::clock::Clock;
    use foundation::config::Config;

    use super::lease_spend::LeaseRef;
    use super::*;

    /// Returns the context of an embedded server whose store has not been opened.
    pub fn embedded_context(clock: Clock) -> Arc<Context> {
        let mut settings = Config::default().validate().expect("valid settings");
        // A test has few keys.
        settings.cache_bytes_max = 1 << 20;
        let (context, _) = Context::new(settings, clock).expect("a context");
        Arc::new(context)
    }

    #[test]
    fn lease_is_trusted_when_it_was_learned_in_the_current_mark_generation() {
        let ledger = CreditLedger::new(embedded_context(Clock::System));
        let key = KeyId::from("key_a");
        let learn = || LeaseRef { lease_number: 1, generation: ledger.mark_generation() };
        let before = learn();
        assert!(ledger.lease_spend.record_spend(&key, before, 1));

        ledger.lease_spend.drop_marks();

        assert!(!ledger.lease_spend.record_spend(&key, before, 2));
        assert!(ledger.lease_spend.record_spend(&key, learn(), 2));
    }
}
