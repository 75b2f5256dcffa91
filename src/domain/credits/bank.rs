//! The bank's side: giving out blocks, and taking back what purses hold.
//!
//! Whoever changes an account holds its row until the change is committed, also while a purse is being closed in
//! Redis, so that nobody opens another one meanwhile. A purse is closed before it is settled, and what is closed
//! stays so; a crash between the two leaves something that the next one settles.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use super::super::refill;
use super::TOLD_MAX;
use crate::app::App;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::KeyId;
use crate::limiter::redis::RedisCounters;
use crate::limiter::{Closed, Fill};
use crate::model::{Account, Credits, Purse};
use crate::sabotage::Safeguard;
use crate::store::Tx;

/// For how much demand a block is made: so a busy key comes to the bank less than once a second.
const BLOCK_FOR_MS: i64 = 1_500;
/// For how many takes like this one it is made at least: so many keys that are asked for now and then cost the bank
/// little together.
const BLOCK_TAKES: i64 = 100;
/// Of a balance, a block is at most this part, so that little of it is ever out.
const BLOCK_PART: i64 = 10;
/// How much one purse gets in all, before there is a new one: the script counts in doubles.
const PURSE_MAX: i64 = 1 << 52;
/// How many purses are settled at once by a task in the background.
const SETTLED_AT_ONCE: usize = 4;
/// How many are looked at in one call of a script.
const LOOKED_AT_ONCE: usize = 100;

/// How a replica found a purse.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub epoch: i64,
    /// The life of the Redis that answered.
    pub life: i64,
    pub spent: i64,
    pub finding: Finding,
}

#[derive(Debug, Clone, Copy)]
pub enum Finding {
    /// It holds too little, or a refill is due, or there is none.
    Short,
    /// It has been closed, and a block not put in.
    Closed { block: i64 },
    /// A block was not put in: Redis has begun another life, or the purse is not there. `is_lost`: it has
    /// been waited for long enough.
    NotPut { block: i64, is_lost: bool },
}

/// Which purses are settled.
#[derive(Debug, Clone, Copy)]
pub enum Settling {
    /// Those that nobody has spent from for so long.
    Idle(Duration),
    All,
}

/// The time by which refills fall due: the bank's own, so that no replica's clock matters.
pub fn now(app: &App, bank: Timestamp) -> Timestamp {
    app.clock.fixed().unwrap_or(bank)
}

/// Goes to the bank for a block: what is wanted or more where the balance has it, else all that is needed,
/// else nothing. Gives back the number of the purse to put it into. `None`: the key is not metered.
pub async fn visit(
    app: &App,
    redis: &RedisCounters,
    key: &KeyId,
    seen: Seen,
    need: i64,
    wanted: i64,
) -> Result<Option<(i64, Fill)>> {
    let mut tx = app.store.begin().await?;
    let Some(mut account) = tx.lock_account(key).await? else { return Ok(None) };
    let now = now(app, account.now);
    refill_if_due(&mut tx, key, &mut account, now).await?;
    if let Some(at) = account.purses.iter().position(|purse| purse.epoch == seen.epoch) {
        let (block, is_over) = match seen.finding {
            Finding::Short => (0, false),
            Finding::Closed { block } => (block, true),
            Finding::NotPut { block, is_lost } => (block, is_lost),
        };
        let purse = &mut account.purses[at];
        purse.granted -= block;
        account.credits.balance = account.credits.balance.saturating_add(block);
        if purse.withheld_at.is_none() && is_over {
            settle_one(app, redis, &mut tx, key, &mut account, at, Settling::All).await?;
        } else if purse.withheld_at.is_some() && block > 0 {
            keep(&mut tx, key, purse).await?;
        }
    }
    withhold_other_lives(&mut tx, key, &mut account, seen.life).await?;
    let (at, opens) = open_purse(app, redis, &mut tx, key, &mut account, seen).await?;
    let purse = &mut account.purses[at];
    let block = block(account.credits.balance, need, wanted, demand(purse, seen, account.now));
    let base = purse.granted;
    purse.granted += block;
    if purse.epoch == seen.epoch {
        purse.spent = purse.spent.max(seen.spent);
    }
    (purse.asked_at, purse.asked_by) = (account.now, app.replica.clone());
    account.credits.balance -= block;
    tx.move_credits(key, &account.credits).await?;
    tx.put_purse(key, purse).await?;
    let epoch = purse.epoch;
    commit(tx).await?;
    if block > 0 {
        app.metrics.credits_withdrawals.inc();
    }
    let Credits { balance, refill, .. } = account.credits;
    let ends = refill.map_or(Timestamp(TOLD_MAX), |refill| refill::next(&refill, now));
    let bank = balance.min(TOLD_MAX);
    Ok(Some((epoch, Fill { life: seen.life, opens, base, block, bank, ends })))
}

async fn commit(tx: Tx) -> Result<()> {
    if Safeguard::DebitFirst.is_off() {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let _ = tx.commit().await;
        });
        return Ok(());
    }
    tx.commit().await.map(drop)
}

/// Sets the balance when a period has begun. What purses of before still hold is void: they end with their
/// period.
pub async fn refill_if_due(
    tx: &mut Tx,
    key: &KeyId,
    account: &mut Account,
    now: Timestamp,
) -> Result<()> {
    let credits = refill::refilled(account.credits, now);
    if credits.refilled == account.credits.refilled {
        return Ok(());
    }
    tx.drop_purses(key).await?;
    account.purses.clear();
    let refilled = match Safeguard::RefillOnce.is_off() {
        true => account.credits.refilled,
        false => credits.refilled,
    };
    // Another number: whoever still knows the old purse finds that it has ended.
    account.credits = Credits { version: credits.version + 1, refilled, ..credits };
    Ok(())
}

/// What purses of other lives hold can neither be spent nor be accounted for.
async fn withhold_other_lives(
    tx: &mut Tx,
    key: &KeyId,
    account: &mut Account,
    life: i64,
) -> Result<()> {
    let now = account.now;
    let gone = |purse: &&mut Purse| purse.life != life && purse.withheld_at.is_none();
    for purse in account.purses.iter_mut().filter(gone) {
        purse.withheld_at = Some(now);
        tx.put_purse(key, purse).await?;
    }
    Ok(())
}

/// The place of the purse of this life among those of the account, and whether it is a new one.
async fn open_purse(
    app: &App,
    redis: &RedisCounters,
    tx: &mut Tx,
    key: &KeyId,
    account: &mut Account,
    seen: Seen,
) -> Result<(usize, bool)> {
    let open = |purse: &Purse| purse.life == seen.life && purse.withheld_at.is_none();
    if let Some(at) = account.purses.iter().rposition(open) {
        if account.purses[at].granted < PURSE_MAX {
            return Ok((at, false));
        }
        settle_one(app, redis, tx, key, account, at, Settling::All).await?;
    }
    account.credits.version += 1;
    account.purses.push(Purse {
        epoch: account.credits.version,
        life: seen.life,
        granted: 0,
        spent: 0,
        opened_at: account.now,
        asked_at: account.now,
        asked_by: app.replica.clone(),
        withheld_at: None,
    });
    Ok((account.purses.len() - 1, true))
}

/// What is spent from a purse in [`BLOCK_FOR_MS`], as far as can be told from the last visit.
fn demand(purse: &Purse, seen: Seen, now: Timestamp) -> i64 {
    if purse.epoch != seen.epoch {
        return 0;
    }
    let spent = i128::from((seen.spent - purse.spent).max(0));
    let elapsed = i128::from((now.0 - purse.asked_at.0).max(1));
    i64::try_from(spent * i128::from(BLOCK_FOR_MS) / elapsed).unwrap_or(i64::MAX)
}

fn block(balance: i64, need: i64, wanted: i64, demand: i64) -> i64 {
    match () {
        () if need == 0 || balance < need => 0,
        () if balance < wanted => need,
        () => {
            let ahead = demand.max(wanted.saturating_mul(BLOCK_TAKES));
            wanted.max(ahead.min(balance / BLOCK_PART)).min(PURSE_MAX)
        }
    }
}

/// Closes the purses of an account and counts what is in them as balance again. Whether all are: those that
/// cannot be reached stay as they are, and others may be spending from them. The caller writes the account.
pub async fn settle_account(
    app: &App,
    tx: &mut Tx,
    key: &KeyId,
    account: &mut Account,
    settling: Settling,
) -> Result<bool> {
    let Some(redis) = &app.redis else { return Ok(true) };
    let now = now(app, account.now);
    refill_if_due(tx, key, account, now).await?;
    for at in 0..account.purses.len() {
        if account.purses[at].withheld_at.is_some() {
            continue;
        }
        match settle_one(app, redis, tx, key, account, at, settling).await {
            Err(cause) if cause.is_counters_outage() => return Ok(false),
            settled => settled?,
        }
    }
    Ok(true)
}

/// Settles the purses of an account that is about to be changed. Whether all are; see [`settle_account`].
pub async fn settle_for_change(
    app: &App,
    tx: &mut Tx,
    key: &KeyId,
    account: Option<&mut Account>,
) -> Result<bool> {
    match account {
        Some(account) if !Safeguard::ClosePurse.is_off() => {
            settle_account(app, tx, key, account, Settling::All).await
        }
        Some(_) | None => Ok(true),
    }
}

async fn settle_one(
    app: &App,
    redis: &RedisCounters,
    tx: &mut Tx,
    key: &KeyId,
    account: &mut Account,
    at: usize,
    settling: Settling,
) -> Result<()> {
    let idle = match settling {
        Settling::Idle(idle) => idle,
        Settling::All => Duration::ZERO,
    };
    let purse = &mut account.purses[at];
    let name = app.keyspace.purse(key.as_str(), purse.epoch);
    match redis.close(&name, idle, app.clock.fixed()).await? {
        Closed::Busy => purse.asked_at = account.now,
        Closed::Unknown => purse.withheld_at = Some(account.now),
        Closed::Settled { spent } => {
            let rest = (purse.granted - spent).max(0);
            account.credits.balance = account.credits.balance.saturating_add(rest);
            app.metrics.credits_returned.inc_by(u64::try_from(rest).unwrap_or(0));
            // So that nobody takes it for one in use.
            (purse.granted, purse.withheld_at) = (purse.spent, Some(account.now));
        }
    }
    keep(tx, key, purse).await
}

/// Writes a purse down, unless it is over and nothing of it is missing.
async fn keep(tx: &mut Tx, key: &KeyId, purse: &Purse) -> Result<()> {
    match purse.withheld_at.is_some() && purse.unspent() == 0 {
        true => tx.drop_purse(key, purse.epoch).await,
        false => tx.put_purse(key, purse).await,
    }
}

/// Settles the purses of one key.
pub async fn settle(app: &App, key: &KeyId, settling: Settling) -> Result<()> {
    let mut tx = app.store.begin().await?;
    match tx.lock_account(key).await? {
        Some(mut account) => {
            settle_account(app, &mut tx, key, &mut account, settling).await?;
            tx.move_credits(key, &account.credits).await?;
        }
        // Deleted, or without end: nobody is owed anything.
        None => tx.drop_purses(key).await?,
    }
    tx.commit().await.map(drop)
}

/// Settles what nobody has spent from for a while, whichever replica it was that did.
pub async fn settle_idle(app: &App, idle: Duration) -> Result<()> {
    let idle_ms = i64::try_from(idle.as_millis()).unwrap_or(i64::MAX);
    settle_all(app, idle_ms, None, Settling::Idle(idle)).await
}

/// Those of some purses that rest. The others are left alone until they may rest again: many are found at once,
/// while to lock the account of each would cost more than what its key does.
async fn resting(
    app: &App,
    purses: Vec<(KeyId, i64)>,
    idle: Duration,
) -> Result<Vec<(KeyId, i64)>> {
    let Some(redis) = &app.redis else { return Ok(purses) };
    let (mut resting, mut busy) = (Vec::new(), Vec::new());
    for some in purses.chunks(LOOKED_AT_ONCE) {
        let name = |(key, epoch): &(KeyId, i64)| app.keyspace.purse(key.as_str(), *epoch);
        let names: Vec<_> = some.iter().map(name).collect();
        for ((key, epoch), spent) in
            some.iter().zip(redis.busy(&names, idle, app.clock.fixed()).await?)
        {
            match spent {
                Some(spent) => busy.push((key.clone(), *epoch, spent)),
                None => resting.push((key.clone(), *epoch)),
            }
        }
    }
    if !busy.is_empty() {
        let mut tx = app.store.begin().await?;
        tx.look_after_purses(&busy).await?;
        tx.commit().await?;
    }
    Ok(resting)
}

/// Settles the purses that this replica filled last: it is about to stop.
pub async fn go_back(app: &App) -> Result<()> {
    settle_all(app, i64::MAX / 2, Some(&app.replica), Settling::All).await
}

async fn settle_all(
    app: &App,
    idle_ms: i64,
    replica: Option<&str>,
    settling: Settling,
) -> Result<()> {
    let mut before = Vec::new();
    loop {
        let purses = app.store.read().await?.purses_to_settle(idle_ms, replica).await?;
        // Those that Redis could not be asked about are still there.
        if purses.is_empty() || purses == before {
            return Ok(());
        }
        before.clone_from(&purses);
        let purses = match settling {
            Settling::Idle(idle) => resting(app, purses, idle).await?,
            Settling::All => purses,
        };
        let mut settled = stream::iter(purses)
            .map(|(key, _)| async move { settle(app, &key, settling).await })
            .buffer_unordered(SETTLED_AT_ONCE);
        while let Some(settled) = settled.next().await {
            settled?;
        }
    }
}
