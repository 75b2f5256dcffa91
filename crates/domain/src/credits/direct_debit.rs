//! Direct debits: spending from accounts in the database, always in an embedded server, and in a replica while Redis
//! is unreachable.
//!
//! Debits that wait in the same queue are decided together. One transaction locks their accounts, decides the debits
//! in the order of arrival, and writes each account once. Answers are sent after its commit. An embedded server
//! writes a row of its journal instead: see [`journal`].
//!
//! The accounts stay locked while the windows are decided, so both are consumed or neither is. A crash before the
//! commit consumes nothing; after the commit, the answer is correct, whether or not it arrived. Windows are consumed
//! in process memory before the commit. If the commit fails, they stay consumed and none of its debits is admitted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::error::{Error, Result};
use foundation::id::KeyId;
use foundation::model::Credits;
use limiter::Window;
use limiter::redis::{UnresolvedRequest, within_budget};
use store::{Tx, with_timeout};
use tokio::sync::oneshot;

use super::debit_queue::DebitRequest;
use super::{ConsumeDecision, consume_without_account, journal, leases};
use crate::admission::{self, ConsumeMode, LimitDecision};
use crate::context::Context;
use crate::credits::CreditLedger;
use crate::refill;

/// How long a batch may take. A statement never ends on a connection that was lost without notice.
const BATCH_TIMEOUT: Duration = Duration::from_secs(5);
/// The time within which a replica answers while Redis is unreachable, including the wait for Redis.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(50);
/// The minimum time for a debit when the wait for Redis is longer.
const DEBIT_MIN: Duration = Duration::from_millis(10);

/// Consumes `cost` credits from the account and all `windows`, or nothing. If Redis is unreachable, `since` is when
/// the request started to consume credits, and `unsettled` is what Redis may still apply to the windows.
pub async fn consume(
    ledger: &CreditLedger,
    key: &KeyId,
    windows: &[Window],
    cost: i64,
    since: Option<&Stopwatch>,
    unsettled: Option<UnresolvedRequest>,
) -> Result<ConsumeDecision> {
    let (answer, reply) = oneshot::channel();
    let (debited_key, debited_windows) = (key.clone(), windows.to_vec());
    ledger.direct_debits.submit(DebitRequest {
        key: debited_key,
        windows: debited_windows,
        cost,
        unsettled,
        reply_sender: answer,
    })?;
    let reply = match since {
        None => reply.await,
        Some(since) => {
            // The wait counts at most as long as Redis may take: the excess is a lack of processor time of this
            // process.
            let waited = since.elapsed().min(ledger.context.redis_timeout());
            let left = answer_timeout(&ledger.context).saturating_sub(waited);
            within_budget(left, reply).await.ok_or(Error::DebitTimeout)?
        }
    };
    match reply.map_err(|_| Error::StoreNotReady)?? {
        Some(outcome) => Ok(outcome),
        None => Box::pin(consume_without_account(&ledger.context, key, windows.to_vec())).await,
    }
}

fn answer_timeout(context: &Context) -> Duration {
    ANSWER_TIMEOUT.max(context.redis_timeout() + DEBIT_MIN)
}

/// Decides debits, commits them together and answers them. Returns whether that failed because another transaction
/// holds the lock of an account.
pub async fn decide_and_reply(ledger: &CreditLedger, mut debits: Vec<DebitRequest>) -> bool {
    // A caller that has disconnected spends nothing.
    debits.retain(|debit| !debit.reply_sender.is_closed());
    if debits.is_empty() {
        return false;
    }
    let decided = match ledger.context.redis {
        None => journal::decide(ledger, &mut debits).await,
        Some(_) => decide_on_connection(ledger, &mut debits).await,
    };
    match decided {
        Ok(outcomes) => {
            for (debit, outcome) in debits.into_iter().zip(outcomes) {
                let _ = debit.reply_sender.send(Ok(outcome));
            }
            false
        }
        Err(cause) => {
            let is_locked = cause.is_lock_timeout();
            let cause = Arc::new(cause);
            for debit in debits {
                let _ = debit.reply_sender.send(Err(Error::Shared(cause.clone())));
            }
            is_locked
        }
    }
}

/// Calls [`decide`] on one of the connections reserved for debits.
async fn decide_on_connection(
    ledger: &CreditLedger,
    debits: &mut [DebitRequest],
) -> Result<Vec<Option<ConsumeDecision>>> {
    let _connection =
        ledger.direct_debits.connections.acquire().await.map_err(|_| Error::StoreNotReady)?;
    // The wait has no bound. Debits whose callers have left need no transaction: others wait for the connection.
    if debits.iter().all(|debit| debit.reply_sender.is_closed()) {
        return Ok(debits.iter().map(|_| None).collect());
    }
    with_timeout(BATCH_TIMEOUT, decide(ledger, debits)).await
}

/// Decides debits in their order and commits them. Returns `None` for a key that is not metered.
async fn decide(
    ledger: &CreditLedger,
    debits: &mut [DebitRequest],
) -> Result<Vec<Option<ConsumeDecision>>> {
    let mut keys: Vec<_> = debits.iter().map(|debit| debit.key.clone()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut tx = ledger.context.store.begin_within(answer_timeout(&ledger.context)).await?;
    let mut accounts = lock_accounts(&ledger.context, &mut tx, &keys).await?;
    let outcomes = debits.iter_mut().map(|debit| {
        let account = accounts.get_mut(&debit.key)?;
        // Acquiring the lock may have taken longer than the caller waits.
        (!debit.reply_sender.is_closed()).then(|| {
            let before = account.credits.balance;
            let outcome = decide_debit(&ledger.context, debit, &mut account.credits.balance);
            account.is_changed |= account.credits.balance != before;
            outcome
        })
    });
    let outcomes: Vec<_> = outcomes.collect();
    let changed = accounts.into_iter().filter(|(_, account)| account.is_changed);
    let changed: Vec<_> = changed.map(|(key, account)| (key, account.credits)).collect();
    if !changed.is_empty() {
        tx.update_balances(&changed).await?;
    }
    tx.commit().await?;
    ledger.direct_debits.outdated_accounts.record(changed.into_iter().map(|(key, _)| key));
    Ok(outcomes)
}

/// A locked account.
struct LockedAccount {
    credits: Credits,
    is_changed: bool,
}

/// Locks the accounts of keys, and applies the refills that are due.
async fn lock_accounts(
    context: &Context,
    tx: &mut Tx,
    keys: &[KeyId],
) -> Result<HashMap<KeyId, LockedAccount>> {
    let mut accounts = HashMap::new();
    for (key, credits, now) in tx.lock_credits(keys).await? {
        let now = leases::refill_time(context, now);
        let account = match refill::apply_refill(credits, now) == credits {
            true => LockedAccount { credits, is_changed: false },
            false => {
                let Some(mut account) = tx.lock_account(&key).await? else { continue };
                leases::refill_if_due(tx, &key, &mut account, now).await?;
                LockedAccount { credits: account.credits, is_changed: true }
            }
        };
        accounts.insert(key, account);
    }
    Ok(accounts)
}

/// Decides one debit of a locked account.
pub fn decide_debit(
    context: &Context,
    debit: &mut DebitRequest,
    balance: &mut i64,
) -> ConsumeDecision {
    let unsettled = debit.unsettled.take();
    let decision = debit_balance(balance, debit.cost, |mode| {
        decide_windows(context, &debit.windows, mode, unsettled)
    });
    ConsumeDecision::from_limit_decision(decision, Some(*balance))
}

/// Debits a cost from the balance of a locked account, if there is enough and `decide_windows` admits the request.
pub fn debit_balance(
    balance: &mut i64,
    cost: i64,
    decide_windows: impl FnOnce(ConsumeMode) -> LimitDecision,
) -> LimitDecision {
    if *balance < cost {
        return LimitDecision { is_admitted: false, ..decide_windows(ConsumeMode::Peek) };
    }
    let decision = decide_windows(ConsumeMode::Consume);
    if decision.is_admitted {
        *balance -= cost;
    }
    decision
}

fn decide_windows(
    context: &Context,
    windows: &[Window],
    mode: ConsumeMode,
    unsettled: Option<UnresolvedRequest>,
) -> LimitDecision {
    match context.redis {
        None => admission::consume_locally(context, windows, mode),
        Some(_) => {
            let on_outage = context.settings.keys_outage_policy;
            admission::apply_outage_policy(context, windows, on_outage, mode, unsettled)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use foundation::clock::Clock;
    use foundation::config::{Config, Deployment, Settings};
    use futures_util::FutureExt as _;

    use super::*;

    fn replica_settings() -> Settings {
        let mut settings = Config::default().validate().expect("valid settings");
        settings.cache_bytes_max = 1 << 20;
        settings.deployment = Deployment::Replica {
            database_url: String::new(),
            redis_url: "redis://127.0.0.1:1".into(),
        };
        settings
    }

    #[tokio::test]
    async fn debits_have_no_transaction_when_all_callers_left_during_the_wait_for_a_connection() {
        let mut settings = replica_settings();
        settings.database_connections_max = 2;
        let (context, _) = Context::new(settings, Clock::System).expect("a context");
        let ledger = CreditLedger::new(Arc::new(context));
        for has_caller in [false, true] {
            let (reply_sender, reply) = oneshot::channel();
            let (key, windows, unsettled) = (KeyId::from("key_a"), Vec::new(), None);
            let mut debits = [DebitRequest { key, windows, cost: 1, unsettled, reply_sender }];
            let busy = ledger.direct_debits.connections.acquire().await.expect("a connection");
            let mut deciding = pin!(decide_on_connection(&ledger, &mut debits));
            assert!(deciding.as_mut().now_or_never().is_none(), "it waits");

            let caller = has_caller.then_some(reply);
            drop(busy);
            let decided = deciding.await;

            match caller {
                None => assert!(matches!(decided.as_deref(), Ok([None])), "{decided:?}"),
                // The database is not open.
                Some(_) => assert!(matches!(decided, Err(Error::StoreNotReady)), "{decided:?}"),
            }
        }
    }

    #[test]
    fn debit_has_ten_ms_after_the_longest_wait_for_redis() {
        let mut settings = replica_settings();
        for (redis_timeout_ms, expected_ms) in [(1, 50), (40, 50), (41, 51), (500, 510)] {
            settings.redis_timeout_ms = redis_timeout_ms;
            let (context, _) = Context::new(settings.clone(), Clock::System).expect("a context");
            assert_eq!(answer_timeout(&context), Duration::from_millis(expected_ms));
        }
    }
}
