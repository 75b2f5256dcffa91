//! Credits: the bank and the purse.
//!
//! The database is the bank: it alone owns a balance. What is spent comes from a purse, a block that
//! the bank has debited in one durable transaction before anyone may spend from it, and that the
//! counters hold. So no crash of a server can have the same credit spent twice; what it can do is to
//! strand what was in a purse. (A Redis that comes back with older data than it had is not covered.)
//!
//! An embedded server, and every server near the end of a balance, withdraws exactly what it is about
//! to spend: then nothing is stranded, and nobody is refused for a block that somebody else holds.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use tokio::sync::{Mutex, MutexGuard};

use super::refill;
use crate::app::App;
use crate::error::{Error, Result};
use crate::id::KeyId;
use crate::limiter::{
    Counters, Engine as _, Purse, PurseState, Spend, Standing, Take, Taken, Window,
};
use crate::model::{Credits, Key};

/// Below this balance the bank gives out no more than is spent at once.
const BLOCK_FROM: i64 = 1_000;
/// The largest block.
const BLOCK_MAX: i64 = 1_000;
/// From this balance on the counters, which count in doubles, cannot tell it: the bank is asked.
const TOLD_MAX: i64 = (1 << 53) - 1;
/// How often a take goes to the bank when other replicas were faster to the purse.
const ATTEMPTS: u8 = 8;

/// What came of taking windows and credits together.
#[derive(Debug)]
pub struct Outcome {
    pub taken: bool,
    pub windows: Vec<Standing>,
    /// What is left, bank and purse; absent for an unlimited key.
    pub credits: Option<i64>,
}

/// The bank's answer to a withdrawal.
struct Withdrawal {
    block: i64,
    credits: Credits,
}

/// Takes `cost` credits and all `windows`, or nothing. One call to the counters, and none to the bank,
/// where the purse holds enough.
pub async fn take(app: &App, key: &Key, windows: Vec<Window>, cost: i64) -> Result<Outcome> {
    match key.credits {
        None => unmetered(app, windows).await,
        // Boxed: a key without credits does not carry it around.
        Some(credits) => Box::pin(metered(app, key, credits, windows, cost)).await,
    }
}

async fn metered(
    app: &App,
    key: &Key,
    credits: Credits,
    windows: Vec<Window>,
    cost: i64,
) -> Result<Outcome> {
    let mut spending = Spending { app, key: &key.id, cost, credits, windows, drawn: None };
    let first = spending.attempt().await?;
    if !spending.is_short(&first) {
        return spending.outcome(first).await;
    }
    // One withdrawal at a time for a key: a crowd at an empty purse would draw a block each.
    let (_turn, waited) = match app.withdrawals.try_lock(&key.id) {
        Some(turn) => (turn, false),
        None => (app.withdrawals.lock(&key.id).await, true),
    };
    Box::pin(spending.fill(first, waited)).await
}

async fn unmetered(app: &App, windows: Vec<Window>) -> Result<Outcome> {
    if windows.is_empty() {
        return Ok(Outcome { taken: true, windows: Vec::new(), credits: None });
    }
    let take = Take { windows, spend: None };
    let taken = app.counters.take(&take, app.clock.fixed()).await?;
    let windows = taken.standings(&take.windows);
    Ok(Outcome { taken: taken.taken, windows, credits: None })
}

/// A take that may have to go to the bank.
struct Spending<'a> {
    app: &'a App,
    key: &'a KeyId,
    cost: i64,
    /// The account as far as it is known: its version and period name the purse.
    credits: Credits,
    windows: Vec<Window>,
    /// What has been withdrawn and not yet put in.
    drawn: Option<Withdrawal>,
}

impl Spending<'_> {
    async fn attempt(&mut self) -> Result<(Taken, Purse)> {
        let drawn = self.drawn.as_ref();
        let spend = Spend {
            purse: purse(self.app, self.key, &self.credits),
            cost: self.cost,
            put: drawn.map_or(0, |drawn| drawn.block),
            bank: drawn.map(|drawn| drawn.credits.balance.min(TOLD_MAX)),
        };
        let take = Take { windows: std::mem::take(&mut self.windows), spend: Some(spend) };
        let taken = self.app.counters.take(&take, self.app.clock.fixed()).await?;
        self.windows = take.windows;
        let purse = taken.purse.ok_or_else(|| Error::Internal("no purse in the reply".into()))?;
        Ok((taken, purse))
    }

    /// Whether it failed for want of units that the bank may have.
    fn is_short(&self, (taken, purse): &(Taken, Purse)) -> bool {
        let admitted = taken.windows.iter().zip(&self.windows).all(|(count, w)| count.passed(w));
        admitted && purse.state == PurseState::Short
    }

    async fn fill(mut self, first: (Taken, Purse), waited: bool) -> Result<Outcome> {
        // Whoever had the turn before may have filled the purse.
        let mut last = if waited { self.attempt().await? } else { first };
        for _ in 0..ATTEMPTS {
            if !self.is_short(&last) {
                return self.outcome(last).await;
            }
            let need = self.cost - last.1.units;
            // A second time, others have been at the purse: bring all of it.
            let wanted = if self.drawn.is_some() { self.cost } else { need };
            let Some(drawn) = withdraw(self.app, self.key, need, wanted).await? else {
                // Not metered any more: what the caller knows of the key is out of date.
                return unmetered(self.app, self.windows).await;
            };
            self.credits = drawn.credits;
            self.drawn = Some(drawn);
            last = self.attempt().await?;
        }
        Err(Error::Internal(format!("the purse of key {} is too contended", self.key)))
    }

    async fn outcome(self, (taken, purse): (Taken, Purse)) -> Result<Outcome> {
        let windows = taken.standings(&self.windows);
        let credits = left(self.app, self.key, purse, self.drawn).await?;
        Ok(Outcome { taken: taken.taken, windows, credits })
    }
}

/// What is left, bank and purse. A withdrawal knows the bank's balance best, because withdrawals
/// come one after another; then the purse; then the bank is asked.
async fn left(
    app: &App,
    key: &KeyId,
    purse: Purse,
    drawn: Option<Withdrawal>,
) -> Result<Option<i64>> {
    let bank = match (drawn, purse.bank.filter(|bank| *bank < TOLD_MAX)) {
        (Some(drawn), _) => Some(drawn.credits.balance),
        (None, Some(bank)) => Some(bank),
        (None, None) => {
            Box::pin(withdraw(app, key, 0, 0)).await?.map(|asked| asked.credits.balance)
        }
    };
    Ok(bank.map(|bank| purse.units.saturating_add(bank)))
}

/// What is left of a key's credits, bank and purse, spending nothing. `None`: unlimited.
pub async fn balance(app: &App, key: &Key) -> Result<Option<i64>> {
    match key.credits {
        None => Ok(None),
        Some(_) => Ok(take(app, key, Vec::new(), 0).await?.credits),
    }
}

/// What is left as far as it can be told: where the counters are away, what the key's row last knew.
pub async fn known_balance(app: &App, key: &Key) -> Option<i64> {
    balance(app, key).await.unwrap_or_else(|_| key.credits.map(|credits| credits.balance))
}

/// Gives units that were recalled back to the bank, when what they were recalled for came to nothing.
pub async fn give_back(app: &App, key: &KeyId, units: i64) -> Result<()> {
    if units == 0 {
        return Ok(());
    }
    let mut tx = app.store.begin().await?;
    if let Some(credits) = tx.lock_credits(key).await? {
        let balance = credits.balance.saturating_add(units);
        tx.move_credits(key, balance, credits.refilled).await?;
    }
    tx.commit().await.map(drop)
}

/// Empties the purse of a key whose balance is about to be changed, and gives back what was in it.
/// To be called again once the change is committed, for what came into it meanwhile.
pub async fn recall(app: &App, key: &Key) -> Result<i64> {
    match &key.credits {
        None => Ok(0),
        Some(credits) => app.counters.recall(&purse(app, &key.id, credits)).await,
    }
}

fn purse(app: &App, key: &KeyId, credits: &Credits) -> String {
    let period = refill::current(credits, app.clock.now());
    app.keyspace.purse(key.as_str(), credits.version, period)
}

/// Debits a block: `wanted` or more where the bank has it, else all of it where that covers `need`,
/// else nothing. `None`: not metered.
async fn withdraw(app: &App, key: &KeyId, need: i64, wanted: i64) -> Result<Option<Withdrawal>> {
    let mut tx = app.store.begin().await?;
    let Some(stored) = tx.lock_credits(key).await? else { return Ok(None) };
    let mut credits = refill::refilled(stored, app.clock.now());
    let block = block(app, credits.balance, need, wanted);
    credits.balance -= block;
    if credits != stored {
        tx.move_credits(key, credits.balance, credits.refilled).await?;
        tx.commit().await?;
    }
    Ok(Some(Withdrawal { block, credits }))
}

/// Of a large balance a tenth, so that its end is never held by one block.
fn block(app: &App, balance: i64, need: i64, wanted: i64) -> i64 {
    let shared = matches!(app.counters, Counters::Redis(_));
    match () {
        () if need == 0 || balance < need => 0,
        () if shared && balance >= BLOCK_FROM && balance > wanted => {
            wanted.max((balance / 10).min(BLOCK_MAX))
        }
        () if balance >= wanted => wanted,
        () => need,
    }
}

/// Whose turn it is to withdraw, in this process: a lock for each key, some of which share one.
pub struct Withdrawals([Mutex<()>; 256]);

impl Default for Withdrawals {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Withdrawals {
    /// Waits for the turn. It is held across calls to the counters and the bank; each of them is
    /// bounded.
    pub async fn lock(&self, key: &KeyId) -> MutexGuard<'_, ()> {
        self.of(key).lock().await
    }

    fn try_lock(&self, key: &KeyId) -> Option<MutexGuard<'_, ()>> {
        self.of(key).try_lock().ok()
    }

    fn of(&self, key: &KeyId) -> &Mutex<()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        &self.0[(hash % 256) as usize]
    }
}
