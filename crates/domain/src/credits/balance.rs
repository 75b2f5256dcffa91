//! Reading of the credits that a key has left, in its account and its leases.

use std::collections::HashMap;

use foundation::error::{Error, Result};
use foundation::id::KeyId;
use foundation::model::CreditAccount;
use futures_util::FutureExt as _;
use futures_util::future::try_join_all;
use limiter::{ConsumeReply, ConsumeRequest, LeaseSpend, LeaseState, LeaseStatus};

use super::{consume, leases};
use crate::context::Context;
use crate::credits::CreditLedger;
use crate::refill;
use crate::resolved_key::ResolvedKey;

/// Returns what is left of a key's credits, account and lease together, without spending. `None`: unlimited.
pub async fn get_balance(ledger: &CreditLedger, resolved: &ResolvedKey) -> Result<Option<i64>> {
    match resolved.credits() {
        None => Ok(None),
        Some(_) => Ok(consume(ledger, resolved, Vec::new(), 0).await?.credits),
    }
}

/// Returns what is left as far as it is known: the balance in the key's row if neither Redis nor the database
/// responds.
pub async fn get_known_balance(ledger: &CreditLedger, resolved: &ResolvedKey) -> Option<i64> {
    let row = || resolved.credits().map(|credits| credits.account.balance);
    get_balance(ledger, resolved).await.unwrap_or_else(|_| row())
}

/// Returns what each of these keys has left, without spending; unlimited keys are left out. Takes one database call,
/// however many keys there are. With `requires_leases`, fails if what a lease holds cannot be read; else it is left out.
pub async fn list_balances(
    context: &Context,
    keys: &[KeyId],
    requires_leases: bool,
) -> Result<HashMap<KeyId, i64>> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let accounts = context.store.read_balances().await?.list_accounts(keys).await?;
    let balances = accounts
        .into_iter()
        .map(|(key, account)| compute_remaining(context, key, account, requires_leases).boxed());
    Ok(try_join_all(balances).await?.into_iter().collect())
}

async fn compute_remaining(
    context: &Context,
    key: KeyId,
    account: CreditAccount,
    requires_leases: bool,
) -> Result<(KeyId, i64)> {
    let left = match &context.redis {
        None => {
            refill::apply_refill(
                account.credits,
                leases::refill_time(context, account.database_time),
            )
            .balance
        }
        Some(_) => sum_account_and_leases(context, &key, account, requires_leases).await?,
    };
    Ok((key, left))
}

/// Returns what is left according to the account. `None`: unlimited, or deleted.
pub async fn load_balance(context: &Context, key: &KeyId) -> Result<Option<i64>> {
    // The connection is not held while Redis is called.
    let account = context.store.read().await?.find_account(key).await?;
    match account {
        None => Ok(None),
        Some(account) => sum_account_and_leases(context, key, account, false).await.map(Some),
    }
}

/// Returns what an account holds, including its leases in use.
async fn sum_account_and_leases(
    context: &Context,
    key: &KeyId,
    account: CreditAccount,
    requires_leases: bool,
) -> Result<i64> {
    let CreditAccount { credits, leases, database_time: now } = account;
    let refilled = refill::apply_refill(credits, leases::refill_time(context, now));
    let mut total = refilled.balance;
    if refilled != credits {
        // Credits in leases of an earlier refill period are void.
        return Ok(total);
    }
    for lease in leases.iter().filter(|lease| lease.withheld_at.is_none()) {
        let name = context.keyspace.lease(key.as_str(), lease.lease_number);
        let peek = LeaseSpend { lease: name, cost: 0, top_up: None };
        let peek = ConsumeRequest::with_spend(Vec::new(), peek);
        let peeked = match context.redis_of(&lease.region) {
            Ok(redis) => {
                redis.consume(&peek, context.clock.fixed_time()).await.map_err(Error::from)
            }
            Err(cause) => Err(cause),
        };
        match peeked {
            Ok(ConsumeReply { lease: Some(status), .. }) if !is_balance_unknown(&status) => {
                total = total.saturating_add(status.units);
            }
            Err(cause) if requires_leases || !cause.is_redis_outage() => return Err(cause),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(total)
}

/// Returns whether the balance in a lease status has no meaning any more.
pub fn is_balance_unknown(status: &LeaseStatus) -> bool {
    !matches!(status.state, LeaseState::Sufficient | LeaseState::AccountExhausted)
}
