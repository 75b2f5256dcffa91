//! What is told of the credits that a key has left: bank and purse.

use std::collections::HashMap;

use foundation::error::{Error, Result};
use foundation::id::KeyId;
use foundation::model::CreditAccount;
use futures_util::FutureExt as _;
use futures_util::future::try_join_all;
use limiter::redis::RedisCounters;
use limiter::{ConsumeReply, ConsumeRequest, LeaseSpend};

use super::super::keys::ResolvedKey;
use super::super::refill;
use super::{consume, is_over, leases};
use crate::app::App;

/// What is left of a key's credits, bank and purse, spending nothing. `None`: unlimited.
pub async fn balance(app: &App, view: &ResolvedKey) -> Result<Option<i64>> {
    match view.stored().key.credits {
        None => Ok(None),
        Some(_) => Ok(consume(app, view, Vec::new(), 0).await?.credits),
    }
}

/// What is left as far as it can be told: where nobody can be asked, what the key's row last knew.
pub async fn known_balance(app: &App, view: &ResolvedKey) -> Option<i64> {
    let row = || view.stored().key.credits.map(|credits| credits.balance);
    balance(app, view).await.unwrap_or_else(|_| row())
}

/// What each of some keys has left, spending nothing; a key that is unlimited is left out. It asks the bank
/// once, however many keys there are.
pub async fn balances(app: &App, keys: &[KeyId]) -> Result<HashMap<KeyId, i64>> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let accounts = app.store.read_balances().await?.accounts(keys).await?;
    let told = accounts.into_iter().map(|(key, account)| left(app, key, account).boxed());
    Ok(try_join_all(told).await?.into_iter().collect())
}

async fn left(app: &App, key: KeyId, account: CreditAccount) -> Result<(KeyId, i64)> {
    let left = match &app.redis {
        None => {
            refill::apply_refill(account.credits, leases::refill_time(app, account.database_time))
                .balance
        }
        Some(redis) => held(app, redis, &key, account).await?,
    };
    Ok((key, left))
}

/// What is left by the bank's own word. `None`: unlimited, or gone.
pub async fn load_balance(app: &App, redis: &RedisCounters, key: &KeyId) -> Result<Option<i64>> {
    match app.store.read().await?.account(key).await? {
        None => Ok(None),
        Some(account) => held(app, redis, key, account).await.map(Some),
    }
}

/// What an account holds, with its purses in use.
async fn held(
    app: &App,
    redis: &RedisCounters,
    key: &KeyId,
    account: CreditAccount,
) -> Result<i64> {
    let CreditAccount { credits, purses, database_time: now } = account;
    let refilled = refill::apply_refill(credits, leases::refill_time(app, now));
    let mut told = refilled.balance;
    if refilled != credits {
        // What purses of a period before still hold is void.
        return Ok(told);
    }
    for purse in purses.iter().filter(|purse| purse.withheld_at.is_none()) {
        let name = app.keyspace.lease(key.as_str(), purse.epoch);
        let look = LeaseSpend { purse: name, cost: 0, fill: None };
        let look = ConsumeRequest { windows: Vec::new(), spend: Some(look) };
        match redis.consume(&look, app.clock.fixed_time()).await.map_err(Error::from) {
            Ok(ConsumeReply { purse: Some(purse), .. }) if !is_over(&purse) => {
                told = told.saturating_add(purse.units);
            }
            Err(cause) if !cause.is_counters_outage() => return Err(cause),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(told)
}
