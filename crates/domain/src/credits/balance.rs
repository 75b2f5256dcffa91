//! Reading of the credits that a key has left, in its account and its leases.

use std::collections::HashMap;
use std::time::Duration;

use foundation::error::{Error, Result};
use foundation::id::KeyId;
use foundation::model::{CreditAccount, Credits, Lease};
use futures_util::FutureExt as _;
use futures_util::future::try_join_all;
use limiter::{ConsumeRequest, LeaseSpend, LeaseState, LeaseStatus};

use super::{consume, leases};
use crate::context::Context;
use crate::credits::CreditLedger;
use crate::refill;
use crate::resolved_key::ResolvedKey;

/// The pauses before an account is read again, whose leases are in Redis or in the account only.
const ACCOUNT_PAUSES: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(150),
    Duration::from_millis(300),
    Duration::from_millis(500),
];

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
/// however many keys there are. With `requires_leases`, fails if what a lease holds is unknown; else it is left out.
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
    Ok(try_join_all(balances).await?.into_iter().flatten().collect())
}

async fn compute_remaining(
    context: &Context,
    key: KeyId,
    account: CreditAccount,
    requires_leases: bool,
) -> Result<Option<(KeyId, i64)>> {
    let left = match &context.redis {
        None => Some(apply_refill(context, &account).balance),
        Some(_) if requires_leases => load_exact_balance(context, &key, account).await?,
        Some(_) => Some(sum_account_and_leases(context, &key, &account).await?),
    };
    Ok(left.map(|left| (key, left)))
}

/// Returns what is left according to the account. `None`: unlimited, or deleted.
pub async fn load_balance(context: &Context, key: &KeyId) -> Result<Option<i64>> {
    // The connection is not held while Redis is called.
    let account = context.store.read().await?.find_account(key).await?;
    match account {
        None => Ok(None),
        Some(account) => sum_account_and_leases(context, key, &account).await.map(Some),
    }
}

/// Returns what is left of an account and all its leases, or fails if what one of them holds is unknown. `None`: the key
/// is unlimited meanwhile.
///
/// For a moment, a lease that a replica opens or closes is only in the account or only in Redis. So the account is read
/// again, after a pause.
async fn load_exact_balance(
    context: &Context,
    key: &KeyId,
    mut account: CreditAccount,
) -> Result<Option<i64>> {
    let mut pauses = ACCOUNT_PAUSES.into_iter();
    loop {
        match (sum_account_and_all_leases(context, key, &account).await, pauses.next()) {
            (Err(Error::LeaseNotFound(_)), Some(pause)) => tokio::time::sleep(pause).await,
            (result, _) => return result.map(Some),
        }
        let mut reader = context.store.read_balances().await?;
        match reader.list_accounts(std::slice::from_ref(key)).await?.pop() {
            Some((_, current)) => account = current,
            None => return Ok(None),
        }
    }
}

/// Returns what an account holds, including all its leases. Fails if what one of them holds is unknown.
async fn sum_account_and_all_leases(
    context: &Context,
    key: &KeyId,
    account: &CreditAccount,
) -> Result<i64> {
    let (mut total, leases) = current_parts(context, account);
    // Forfeited leases are withheld and hold nothing.
    let is_relevant = |lease: &&Lease| lease.withheld_at.is_none() || lease.unspent_units() > 0;
    for lease in leases.iter().filter(is_relevant) {
        if lease.withheld_at.is_some() {
            return Err(Error::CreditsWithheld(key.clone()));
        }
        match peek_lease(context, key, lease).await? {
            // What was debited for it when the account was read: top-ups on their way to Redis count, and later ones,
            // which the account still holds, do not.
            Some(status) => {
                total = total.saturating_add(lease.granted.saturating_sub(status.spent_units));
            }
            None if lease.unspent_units() > 0 => return Err(Error::LeaseNotFound(key.clone())),
            None => {}
        }
    }
    Ok(total.max(0))
}

/// Returns what an account holds, including its leases in use whose status is known.
async fn sum_account_and_leases(
    context: &Context,
    key: &KeyId,
    account: &CreditAccount,
) -> Result<i64> {
    let (mut total, leases) = current_parts(context, account);
    for lease in leases.iter().filter(|lease| lease.withheld_at.is_none()) {
        match peek_lease(context, key, lease).await {
            Ok(Some(status)) => total = total.saturating_add(status.units),
            Err(cause) if !cause.is_redis_outage() => return Err(cause),
            Ok(None) | Err(_) => {}
        }
    }
    Ok(total)
}

/// Returns the balance of an account, and its leases. After a refill there are none: credits in leases of an earlier
/// refill period are void.
fn current_parts<'a>(context: &Context, account: &'a CreditAccount) -> (i64, &'a [Lease]) {
    let refilled = apply_refill(context, account);
    let leases = match refilled == account.credits {
        true => account.leases.as_slice(),
        false => &[],
    };
    (refilled.balance, leases)
}

fn apply_refill(context: &Context, account: &CreditAccount) -> Credits {
    refill::apply_refill(account.credits, leases::refill_time(context, account.database_time))
}

/// Returns the status of a lease. `None`: Redis does not know its balance.
async fn peek_lease(context: &Context, key: &KeyId, lease: &Lease) -> Result<Option<LeaseStatus>> {
    let name = context.keyspace.lease(key.as_str(), lease.lease_number);
    let peek = LeaseSpend { lease: name, cost: 0, top_up: None };
    let peek = ConsumeRequest::with_spend(Vec::new(), peek);
    let redis = context.redis_of(&lease.region)?;
    let reply = redis.consume(&peek, context.clock.fixed_time()).await.map_err(Error::from)?;
    Ok(reply.lease.filter(|status| !is_balance_unknown(status)))
}

/// Returns whether the balance in a lease status has no meaning any more.
pub fn is_balance_unknown(status: &LeaseStatus) -> bool {
    !matches!(status.state, LeaseState::Sufficient | LeaseState::AccountExhausted)
}
