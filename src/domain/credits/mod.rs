//! Credits: the bank and the purse.
//!
//! The database is the bank: it alone owns a balance. What is spent comes from a purse in Redis, which
//! holds blocks that the bank has debited, durably, before anyone may spend from them. A purse belongs to
//! one life of its Redis, so whatever a crash brings back, no credit is spent twice. Without Redis, the
//! bank itself is debited: see [`straight`].

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

use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::error::{Error, Result};
use foundation::id::KeyId;
use foundation::model::Credits;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use limiter::redis::{RedisCounters, Unsettled};
use limiter::{
    ConsumeReply, ConsumeRequest, GroupChange, LeaseSpend, LeaseState, LeaseStatus, TopUp, Window,
    WindowStatus,
};
use store::bounded;

use self::balance::load_balance;
use self::lease_spend::Learned;
use self::leases::{LeaseObservation, LeaseProblem, TopUpResult};
use super::admission::{self, LimitDecision};
use super::keys::ResolvedKey;
use crate::app::App;

pub use self::balance::{balance, balances, known_balance};
pub use self::closing::{
    close_outdated, close_own_leases, settle_for_change, settle_idle, withhold_unclosed,
};
pub use self::debit_queue::{DEBIT_QUEUE_MAX, Debits, run as serve_debits};
pub use self::lease_spend::LeaseSpendTracker;
pub use self::leases::refill_time;
pub use self::top_up_locks::Turns;
pub use self::withheld::{
    account_for_all, count_out, forget_settled, release, report_and_deregister, report_lost_leases,
    sum_withheld, withheld,
};

/// From this balance on a script, which counts in doubles, cannot tell it: the bank is asked.
const SCRIPT_BALANCE_MAX: i64 = (1 << 53) - 1;
/// How often a take goes to the bank when other replicas were faster to the purse.
const ATTEMPTS: u8 = 8;
/// How often it finds that a purse which another replica has opened is not there yet, or that blocks of others are on
/// their way, and for how long it waits each time, until it takes them for lost.
const PATIENCE: u8 = 4;
const PAUSE: Duration = Duration::from_millis(3);
/// How long a visit to the bank waits for a connection, and for the account.
const ACCOUNT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it waits for the account on a connection, and then without one: the first pause, and the longest. So many
/// accounts that are locked do not keep all connections from others.
const LOCK_WAIT: Duration = Duration::from_millis(20);
const LOCK_PAUSE_MIN: Duration = Duration::from_millis(20);
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(160);
/// How long it is believed of a purse that the bank has no more either.
const EXCEEDED_FOR_MS: i64 = 1_000;

/// What came of taking windows and credits together.
#[derive(Debug)]
pub struct ConsumeDecision {
    pub taken: bool,
    pub windows: Vec<WindowStatus>,
    /// What is left, bank and purse; absent for an unlimited key.
    pub credits: Option<i64>,
    /// Whether it was decided without Redis.
    pub degraded: bool,
    /// What it did to the group of the windows.
    pub group: GroupChange,
    /// Whether the key has been deleted: nothing was taken.
    pub is_gone: bool,
}

impl ConsumeDecision {
    fn of(tally: LimitDecision, credits: Option<i64>) -> Self {
        let LimitDecision { taken, standings, degraded, group } = tally;
        Self { taken, windows: standings, credits, degraded, group, is_gone: false }
    }
}

/// Takes `cost` credits and all `windows`, or nothing. One call to the counters, and none to the bank,
/// where the purse holds enough.
pub async fn consume(
    app: &App,
    view: &ResolvedKey,
    windows: Vec<Window>,
    cost: i64,
) -> Result<ConsumeDecision> {
    match view.stored().key.credits {
        None => unmetered(app, windows).await,
        // Boxed: a key without credits does not carry it around.
        Some(credits) => Box::pin(metered(app, view, credits, windows, cost)).await,
    }
}

/// Takes all `windows`, or nothing, of a key that turns out to have no account: what the caller knows of it is out of date.
async fn without_account(app: &App, key: &KeyId, windows: Vec<Window>) -> Result<ConsumeDecision> {
    if app.store.read().await?.has_key(key).await? {
        return unmetered(app, windows).await;
    }
    let tally = LimitDecision {
        taken: false,
        standings: Vec::new(),
        degraded: false,
        group: GroupChange::None,
    };
    Ok(ConsumeDecision { is_gone: true, ..ConsumeDecision::of(tally, None) })
}

async fn unmetered(app: &App, windows: Vec<Window>) -> Result<ConsumeDecision> {
    if windows.is_empty() {
        let tally = LimitDecision {
            taken: true,
            standings: Vec::new(),
            degraded: false,
            group: GroupChange::None,
        };
        return Ok(ConsumeDecision::of(tally, None));
    }
    let tally = admission::consume_exact(app, windows, app.settings.keys_on_outage).await?;
    Ok(ConsumeDecision::of(tally, None))
}

async fn metered(
    app: &App,
    view: &ResolvedKey,
    credits: Credits,
    windows: Vec<Window>,
    cost: i64,
) -> Result<ConsumeDecision> {
    let (key, since) = (&view.stored().key.id, Stopwatch::new());
    let redis = app.redis.as_ref().filter(|_| app.is_registered());
    let Some(redis) = redis else {
        // A replica that is not registered yet may ask Redis soon: it is not unreachable.
        let since =
            app.redis.as_ref().is_some_and(RedisCounters::is_breaker_open).then_some(&since);
        return Box::pin(direct_debit::take(app, key, &windows, cost, since, None)).await;
    };
    let unsettled = None;
    let mut spending = MeteredConsume { app, redis, view, key, cost, windows, credits, unsettled };
    match spending.run().await {
        Err(cause) if cause.is_counters_outage() => {
            // What the purse says of the bank when it is back is out of date.
            view.purse.mark_balance_stale();
            let (windows, unsettled) = (&spending.windows, spending.unsettled);
            Box::pin(direct_debit::take(app, key, windows, cost, Some(&since), unsettled)).await
        }
        outcome => outcome,
    }
}

/// How an attempt found things.
struct Attempt {
    taken: ConsumeReply,
    purse: LeaseStatus,
    /// Of the block that was to be put in, what was not.
    not_put: i64,
}

/// A take that may have to go to the bank.
struct MeteredConsume<'a> {
    app: &'a App,
    redis: &'a RedisCounters,
    view: &'a ResolvedKey,
    key: &'a KeyId,
    cost: i64,
    windows: Vec<Window>,
    /// The account as the key's row knows it.
    credits: Credits,
    /// What Redis may still do, where it has not replied in time.
    unsettled: Option<Unsettled>,
}

impl MeteredConsume<'_> {
    async fn run(&mut self) -> Result<ConsumeDecision> {
        let lease = self.lease();
        let first = self.attempt(lease, None).await?;
        match self.finding(&first) {
            None => self.outcome(&first).await,
            // Boxed: it is rare, and large.
            Some(finding) => self.run_in_turn(lease, first, finding).boxed().await,
        }
    }

    /// Asks for more in this key's turn: a crowd at an empty purse would draw a block each.
    async fn run_in_turn(
        &mut self,
        lease: Learned,
        last: Attempt,
        finding: LeaseProblem,
    ) -> Result<ConsumeDecision> {
        let app = self.app;
        let mut turn = app.turns.of(self.key);
        let has_waited = turn.wait().await?;
        let running = self.run_with_bank(has_waited, lease, last, finding);
        running.await.map_err(|cause| turn.fail(cause))
    }

    /// Goes to the bank, until the purse has what is needed or the bank has no more.
    async fn run_with_bank(
        &mut self,
        has_waited: bool,
        mut lease: Learned,
        mut last: Attempt,
        mut finding: LeaseProblem,
    ) -> Result<ConsumeDecision> {
        if has_waited {
            // Whoever had the turn before may have filled the purse.
            lease = self.lease();
            last = self.attempt(lease, None).await?;
            match self.finding(&last) {
                Some(found) => finding = found,
                None => return self.outcome(&last).await,
            }
        }
        for visits in 0..ATTEMPTS {
            let purse = last.purse;
            let LeaseStatus { life, units, spent, .. } = purse;
            let seen = LeaseObservation { epoch: lease.epoch, life, units, spent, finding };
            let generation = self.app.lease_spend.generation();
            let Self { app, redis, key, cost, .. } = *self;
            let visit = || leases::top_up(app, redis, key, seen, cost).boxed();
            let fill = match while_locked(self.app, visit).await? {
                TopUpResult::Unmetered => {
                    let windows = std::mem::take(&mut self.windows);
                    return without_account(self.app, self.key, windows).await;
                }
                TopUpResult::Withheld => return self.debit(false).await,
                TopUpResult::Full(..) if visits >= PATIENCE => return self.debit(true).await,
                TopUpResult::Full(epoch, fill) => {
                    lease = Learned { epoch, generation };
                    tokio::time::sleep(PAUSE).await;
                    fill
                }
                TopUpResult::Lease(epoch, fill) => {
                    lease = Learned { epoch, generation };
                    fill
                }
            };
            self.view.purse.record_top_up(lease.epoch, generation);
            last = self.attempt(lease, Some(fill)).await?;
            match self.finding(&last) {
                Some(found) => finding = found,
                None => return self.outcome(&last).await,
            }
            if let LeaseProblem::TopUpRejected { is_lost, .. } = &mut finding
                && last.purse.state == LeaseState::NotFound
            {
                // Another replica may just have opened it, and its block is on its way.
                *is_lost = visits >= PATIENCE;
                tokio::time::sleep(PAUSE).await;
            }
        }
        self.debit(true).await
    }

    /// Debits the account itself.
    async fn debit(&self, closes: bool) -> Result<ConsumeDecision> {
        // Boxed: it is rare, and large.
        let Self { app, redis, key, cost, windows, .. } = self;
        let debit = || capped_debit::take(app, redis, key, windows, *cost, closes).boxed();
        while_locked(app, debit).await
    }

    /// The purse that the bank told last; where it has not been asked yet, the last number it has given,
    /// which is that of the purse unless the balance has been moved since.
    fn lease(&self) -> Learned {
        match self.view.purse.learned() {
            (0, generation) => Learned { epoch: self.credits.last_lease_number, generation },
            (epoch, generation) => Learned { epoch, generation },
        }
    }

    async fn attempt(&mut self, lease: Learned, fill: Option<TopUp>) -> Result<Attempt> {
        let epoch = lease.epoch;
        let purse = self.app.keyspace.lease(self.key.as_str(), epoch);
        let spend = LeaseSpend { purse, cost: self.cost, fill };
        let take =
            ConsumeRequest { windows: std::mem::take(&mut self.windows), spend: Some(spend) };
        let taken = self.redis.consume(&take, self.app.clock.fixed_time()).await;
        self.windows = take.windows;
        let taken = taken.map_err(|missed| {
            self.unsettled = missed.unsettled;
            missed.cause
        })?;
        let mut purse =
            taken.purse.ok_or_else(|| Error::Internal("no purse in the reply".into()))?;
        let not_put = match purse.state {
            LeaseState::Closed | LeaseState::WrongGeneration | LeaseState::NotFound => {
                fill.map_or(0, |fill| fill.block)
            }
            LeaseState::Sufficient | LeaseState::Insufficient | LeaseState::AccountExhausted => 0,
        };
        if purse.bank.is_some() && !self.app.lease_spend.record_spend(self.key, lease, purse.spent)
        {
            // The bank has taken this purse for lost: whatever came of it, it does not count. A block that
            // was put in is lost with it, for others may still be spending it.
            purse.state = LeaseState::Closed;
        }
        Ok(Attempt { taken, purse, not_put })
    }

    /// What the bank is to be told, where the take failed for want of something that it can give.
    fn finding(&self, Attempt { taken, purse, not_put }: &Attempt) -> Option<LeaseProblem> {
        let block = *not_put;
        let admitted = taken.windows.iter().zip(&self.windows).all(|(count, w)| count.passed(w));
        match purse.state {
            // A block that was not put in goes back, whatever else comes of it.
            LeaseState::WrongGeneration | LeaseState::NotFound => {
                Some(LeaseProblem::TopUpRejected { block, is_lost: false })
            }
            LeaseState::Closed if block > 0 => Some(LeaseProblem::Closed { block }),
            _ if !admitted || self.cost == 0 => None,
            LeaseState::Sufficient => None,
            LeaseState::Insufficient => Some(LeaseProblem::Short),
            LeaseState::Closed => Some(LeaseProblem::Closed { block }),
            LeaseState::AccountExhausted => {
                self.view.purse.is_stale(EXCEEDED_FOR_MS).then_some(LeaseProblem::Short)
            }
        }
    }

    async fn load_balance(&self) -> Result<Option<i64>> {
        if !self.app.freshness.is_database_reachable() {
            return Err(Error::StoreNotReady);
        }
        bounded(ACCOUNT_TIMEOUT, Box::pin(load_balance(self.app, self.redis, self.key))).await
    }

    async fn outcome(&self, Attempt { taken, purse, .. }: &Attempt) -> Result<ConsumeDecision> {
        let known = purse.bank.filter(|bank| *bank < SCRIPT_BALANCE_MAX && !is_over(purse));
        let left = known.map(|bank| purse.units.saturating_add(bank));
        let told = match left.filter(|_| !self.view.purse.is_balance_stale()) {
            Some(left) => Some(left),
            None => match self.load_balance().await {
                // What was spent is spent: the answer does not depend on how well the rest is known.
                Err(cause) if cause.is_outage() => Some(left.unwrap_or(self.credits.balance)),
                told => told?,
            },
        };
        Ok(ConsumeDecision::of(LimitDecision::of(taken, &self.windows), told))
    }
}

/// Has a transaction on one of the connections that debits may use, again and again while its account is locked.
async fn while_locked<'a, T>(
    app: &App,
    visit: impl Fn() -> BoxFuture<'a, Result<T>> + Send,
) -> Result<T> {
    let (began, mut pause) = (Stopwatch::new(), LOCK_PAUSE_MIN);
    loop {
        let connection = app.debits.connections.acquire();
        let connection = async { connection.await.map_err(|_| Error::StoreNotReady) };
        let connection = bounded(ACCOUNT_TIMEOUT, connection).await?;
        match visit().await {
            Err(cause) if cause.is_lock_timeout() && began.elapsed() < ACCOUNT_TIMEOUT => {
                drop(connection);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LOCK_PAUSE_MAX);
            }
            visited => return visited,
        }
    }
}

/// Whether what a purse says of the balance says nothing any more.
fn is_over(purse: &LeaseStatus) -> bool {
    !matches!(purse.state, LeaseState::Sufficient | LeaseState::AccountExhausted)
}
