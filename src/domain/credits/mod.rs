//! Credits: the bank and the purse.
//!
//! The database is the bank: it alone owns a balance. What is spent comes from a purse in Redis, which
//! holds blocks that the bank has debited, durably, before anyone may spend from them. A purse belongs to
//! one life of its Redis, so whatever a crash brings back, no credit is spent twice. Without Redis, the
//! bank itself is debited: see [`straight`].

mod bank;
mod ledger;
mod straight;
mod told;

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use self::bank::{Finding, Seen};
use self::told::told_by_bank;
use super::counting::{self, Tally};
use super::keys::View;
use crate::app::App;
use crate::error::{Error, Result};
use crate::id::KeyId;
use crate::limiter::redis::RedisCounters;
use crate::limiter::{Fill, Purse, PurseState, Spend, Standing, Take, Taken, Window};
use crate::model::Credits;

pub use self::bank::{go_back, now, settle_for_change, settle_idle};
pub use self::ledger::{
    Spent, account, forget_settled, release, sign_off, units_withheld, withheld,
};
pub use self::told::{balance, balances, known_balance};

/// From this balance on a script, which counts in doubles, cannot tell it: the bank is asked.
const TOLD_MAX: i64 = (1 << 53) - 1;
/// How often a take goes to the bank when other replicas were faster to the purse.
const ATTEMPTS: u8 = 8;
/// How often it finds that a purse which another replica has opened is not there yet, and for how long it
/// waits each time, until it takes the purse for lost.
const PATIENCE: u8 = 4;
const PAUSE: Duration = Duration::from_millis(3);
/// How long it is believed of a purse that the bank has no more either.
const EXCEEDED_FOR_MS: i64 = 1_000;

/// What came of taking windows and credits together.
#[derive(Debug)]
pub struct Outcome {
    pub taken: bool,
    pub windows: Vec<Standing>,
    /// What is left, bank and purse; absent for an unlimited key.
    pub credits: Option<i64>,
    /// Whether it was decided without Redis.
    pub degraded: bool,
}

impl Outcome {
    fn of(tally: Tally, credits: Option<i64>) -> Self {
        let Tally { taken, standings, degraded } = tally;
        Self { taken, windows: standings, credits, degraded }
    }
}

/// Takes `cost` credits and all `windows`, or nothing. One call to the counters, and none to the bank,
/// where the purse holds enough.
pub async fn take(app: &App, view: &View, windows: Vec<Window>, cost: i64) -> Result<Outcome> {
    match view.stored().key.credits {
        None => unmetered(app, windows).await,
        // Boxed: a key without credits does not carry it around.
        Some(credits) => Box::pin(metered(app, view, credits, windows, cost)).await,
    }
}

async fn unmetered(app: &App, windows: Vec<Window>) -> Result<Outcome> {
    if windows.is_empty() {
        let tally = Tally { taken: true, standings: Vec::new(), degraded: false };
        return Ok(Outcome::of(tally, None));
    }
    let tally = counting::count(app, windows, app.settings.keys_on_outage).await?;
    Ok(Outcome::of(tally, None))
}

async fn metered(
    app: &App,
    view: &View,
    credits: Credits,
    windows: Vec<Window>,
    cost: i64,
) -> Result<Outcome> {
    let key = &view.stored().key.id;
    let redis = app.redis.as_ref().filter(|_| app.is_registered());
    let Some(redis) = redis else {
        return Box::pin(straight::take(app, key, &windows, cost)).await;
    };
    let mut spending = Spending { app, redis, view, key, cost, windows, credits };
    match spending.run().await {
        Err(cause) if cause.is_counters_outage() => {
            // What the purse says of the bank when it is back is out of date.
            view.purse.forget_bank();
            Box::pin(straight::take(app, key, &spending.windows, cost)).await
        }
        outcome => outcome,
    }
}

/// How an attempt found things.
struct Attempt {
    taken: Taken,
    purse: Purse,
    /// Of the block that was to be put in, what was not.
    not_put: i64,
}

/// A take that may have to go to the bank.
struct Spending<'a> {
    app: &'a App,
    redis: &'a RedisCounters,
    view: &'a View,
    key: &'a KeyId,
    cost: i64,
    windows: Vec<Window>,
    /// The account as the key's row knows it.
    credits: Credits,
}

impl Spending<'_> {
    async fn run(&mut self) -> Result<Outcome> {
        let epoch = self.epoch();
        let first = self.attempt(epoch, None).await?;
        match self.finding(&first) {
            None => self.outcome(&first).await,
            // Boxed: it is rare, and large.
            Some(finding) => Box::pin(self.run_with_bank(epoch, first, finding)).await,
        }
    }

    /// Goes to the bank, until the purse has what is needed or the bank has no more.
    async fn run_with_bank(
        &mut self,
        mut epoch: i64,
        mut last: Attempt,
        mut finding: Finding,
    ) -> Result<Outcome> {
        // One at a time goes to the bank for a key: a crowd at an empty purse would draw a block each.
        let (_turn, waited) = match self.app.withdrawals.try_lock(self.key) {
            Some(turn) => (turn, false),
            None => (self.app.withdrawals.lock(self.key).await, true),
        };
        if waited {
            if !self.app.freshness.database_is_near() {
                // A crowd need not find out one after the other that the bank is away.
                return Err(Error::StoreUnopened);
            }
            // Whoever had the turn before may have filled the purse.
            epoch = self.epoch();
            last = self.attempt(epoch, None).await?;
            match self.finding(&last) {
                Some(found) => finding = found,
                None => return self.outcome(&last).await,
            }
        }
        for visits in 0..ATTEMPTS {
            let purse = last.purse;
            let seen = Seen { epoch, life: purse.life, spent: purse.spent, finding };
            let need = (self.cost - purse.units).max(0);
            let visit = bank::visit(self.app, self.redis, self.key, seen, need, self.cost).await?;
            let Some((purse, fill)) = visit else {
                // Not metered any more: what the caller knows of the key is out of date.
                return unmetered(self.app, std::mem::take(&mut self.windows)).await;
            };
            epoch = purse;
            self.view.purse.visited(epoch);
            last = self.attempt(epoch, Some(fill)).await?;
            match self.finding(&last) {
                Some(found) => finding = found,
                None => return self.outcome(&last).await,
            }
            if let Finding::NotPut { is_lost, .. } = &mut finding
                && last.purse.state == PurseState::Missing
            {
                // Another replica may just have opened it, and its block is on its way.
                *is_lost = visits >= PATIENCE;
                tokio::time::sleep(PAUSE).await;
            }
        }
        Err(Error::Internal(format!("the purse of key {} is too contended", self.key)))
    }

    /// The purse that the bank told last; where it has not been asked yet, the last number it has given,
    /// which is that of the purse unless the balance has been moved since.
    fn epoch(&self) -> i64 {
        match self.view.purse.epoch() {
            0 => self.credits.version,
            told => told,
        }
    }

    async fn attempt(&mut self, epoch: i64, fill: Option<Fill>) -> Result<Attempt> {
        let purse = self.app.keyspace.purse(self.key.as_str(), epoch);
        let spend = Spend { purse, cost: self.cost, fill };
        let take = Take { windows: std::mem::take(&mut self.windows), spend: Some(spend) };
        let taken = self.redis.take(&take, self.app.clock.fixed()).await;
        self.windows = take.windows;
        let taken = taken?;
        let mut purse =
            taken.purse.ok_or_else(|| Error::Internal("no purse in the reply".into()))?;
        let not_put = match purse.state {
            PurseState::Closed | PurseState::Elsewhere | PurseState::Missing => {
                fill.map_or(0, |fill| fill.block)
            }
            PurseState::Enough | PurseState::Short | PurseState::Exceeded => 0,
        };
        if purse.bank.is_some() && !self.app.spent.heard(self.key, epoch, purse.spent) {
            // The bank has taken this purse for lost: whatever came of it, it does not count. A block that
            // was put in is lost with it, for others may still be spending it.
            purse.state = PurseState::Closed;
        }
        Ok(Attempt { taken, purse, not_put })
    }

    /// What the bank is to be told, where the take failed for want of something that it can give.
    fn finding(&self, Attempt { taken, purse, not_put }: &Attempt) -> Option<Finding> {
        let block = *not_put;
        let admitted = taken.windows.iter().zip(&self.windows).all(|(count, w)| count.passed(w));
        match purse.state {
            // A block that was not put in goes back, whatever else comes of it.
            PurseState::Elsewhere | PurseState::Missing => {
                Some(Finding::NotPut { block, is_lost: false })
            }
            PurseState::Closed if block > 0 => Some(Finding::Closed { block }),
            _ if !admitted || self.cost == 0 => None,
            PurseState::Enough => None,
            PurseState::Short => Some(Finding::Short),
            PurseState::Closed => Some(Finding::Closed { block }),
            PurseState::Exceeded => {
                self.view.purse.is_stale(EXCEEDED_FOR_MS).then_some(Finding::Short)
            }
        }
    }

    async fn outcome(&self, Attempt { taken, purse, .. }: &Attempt) -> Result<Outcome> {
        let known = purse.bank.filter(|bank| *bank < TOLD_MAX && !is_over(purse));
        let told = match known.filter(|_| !self.view.purse.is_distrusted()) {
            Some(bank) => Some(purse.units.saturating_add(bank)),
            None => Box::pin(told_by_bank(self.app, self.redis, self.key)).await?,
        };
        Ok(Outcome::of(Tally::of(taken, &self.windows), told))
    }
}

/// Whether what a purse says of the balance says nothing any more.
fn is_over(purse: &Purse) -> bool {
    !matches!(purse.state, PurseState::Enough | PurseState::Exceeded)
}

/// Whose turn it is to go to the bank, in this process: a lock for each key, some of which share one.
pub struct Withdrawals([Mutex<()>; 256]);

impl Default for Withdrawals {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Withdrawals {
    /// Waits for the turn. It is held across calls to the counters and the bank; each of them is
    /// bounded.
    async fn lock(&self, key: &KeyId) -> MutexGuard<'_, ()> {
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
