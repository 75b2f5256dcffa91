//! Decides a top-up: what is closed and withheld before it, and how much is debited.
//!
//! A [`TopUpChange`] calls neither Redis nor the database: the owner of the transaction, which has locked the account,
//! performs each [`AccountStep`], and commits after the last one.

mod amounts;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use foundation::clock::Timestamp;
use foundation::fault_injection::Safeguard;
use foundation::model::{CreditAccount, Credits, Lease};
use limiter::{CloseResult, TopUp};

use self::amounts::{LEASE_GRANTED_MAX, estimate_demand, leased_max, top_up_amount};
use super::SCRIPT_BALANCE_MAX;
use super::closing_steps::{AccountStep, apply_close};
use crate::context::LeaseHolder;
use crate::refill;

/// How a replica found a lease.
#[derive(Debug, Clone, Copy)]
pub struct LeaseObservation {
    pub lease_number: i64,
    /// The Redis generation that answered.
    pub redis_generation: i64,
    pub units: i64,
    pub spent: i64,
    pub problem: LeaseProblem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseProblem {
    /// The lease holds too little, a refill is due, or there is no lease.
    Insufficient,
    /// The lease has been closed, and a top-up was not added.
    Closed { block: i64 },
    /// A top-up was not added: the Redis generation has changed, or the lease was not found. `is_lost`: it has been
    /// waited for long enough.
    TopUpRejected { block: i64, is_lost: bool },
}

/// The result of a top-up.
#[derive(Debug, Clone, Copy)]
pub enum TopUpResult {
    /// The key is not metered any more.
    Unmetered,
    /// The number of the lease to spend from, and the top-up to add to it.
    Lease(i64, TopUp),
    /// The bound on leased credits is reached, in part by top-ups of the lease in use that are in flight and may soon
    /// be spent. Or the balance is too small without them.
    TopUpsInFlight(i64, TopUp),
    /// The bound on leased credits is reached, mostly by withheld credits. Or the cost is more than a script can count.
    Withheld,
}

/// A change of a locked account that tops up a lease, for a request of a cost: as much as the demand requires and the
/// bound permits, but at least what the lease lacks. Nothing if the balance is less than that.
#[derive(Debug)]
pub struct TopUpChange<'a> {
    account: CreditAccount,
    observed: LeaseObservation,
    cost: i64,
    replica: LeaseHolder<'a>,
    /// The time by which refills fall due.
    now: Timestamp,
    stage: TopUpStage,
    /// The steps to perform before the next stage.
    pending: VecDeque<PendingStep>,
    /// The lease that is being closed.
    closing: usize,
    result: TopUpResult,
}

#[derive(Debug, Clone, Copy)]
enum TopUpStage {
    Refill,
    ReturnTopUp,
    /// Examine the lease at this index.
    CloseWithheld(usize),
    FindLease,
    OpenLease,
    /// Debit the top-up for the lease at this index. `true`: it is new.
    Debit(usize, bool),
    End,
}

/// An [`AccountStep`]; numbers are indexes of leases.
#[derive(Debug, Clone, Copy)]
enum PendingStep {
    Forfeit,
    Close(usize),
    /// Upsert the lease, or delete it if it is closed and no credit of it is missing.
    Write(usize),
    Upsert(usize),
    UpdateBalance,
}

impl<'a> TopUpChange<'a> {
    /// Begins the change of an account that was just locked. `now` is the time by which refills fall due.
    pub fn new(
        account: CreditAccount,
        observed: LeaseObservation,
        cost: i64,
        replica: LeaseHolder<'a>,
        now: Timestamp,
    ) -> Self {
        let (stage, pending) = (TopUpStage::Refill, VecDeque::new());
        let (closing, result) = (0, TopUpResult::Withheld);
        Self { account, observed, cost, replica, now, stage, pending, closing, result }
    }

    /// Returns what to do next.
    pub fn next_step(&mut self) -> AccountStep<'_> {
        while self.pending.is_empty() {
            match self.stage {
                TopUpStage::End => return AccountStep::End,
                stage => self.stage = self.advance(stage),
            }
        }
        let CreditAccount { credits, leases, .. } = &self.account;
        match self.pending.pop_front() {
            Some(PendingStep::Forfeit) => AccountStep::ForfeitLeases,
            Some(PendingStep::Close(index)) => {
                self.closing = index;
                AccountStep::CloseLease { lease: &leases[index], idle: Duration::ZERO }
            }
            Some(PendingStep::Write(index)) => AccountStep::write(&leases[index]),
            Some(PendingStep::Upsert(index)) => AccountStep::UpsertLease(&leases[index]),
            Some(PendingStep::UpdateBalance) => AccountStep::UpdateBalance(credits),
            None => AccountStep::End,
        }
    }

    /// Applies the result of [`AccountStep::CloseLease`]. Returns the credits that return to the account.
    pub fn apply_close(&mut self, result: CloseResult) -> i64 {
        let lease = &mut self.account.leases[self.closing];
        let summary = apply_close(lease, result, self.account.database_time);
        self.pending.push_front(PendingStep::Write(self.closing));
        summary.add_to(&mut self.account);
        summary.returned_credits
    }

    /// Returns the result. It is valid once the transaction has been committed after the last step.
    pub fn result(&self) -> TopUpResult {
        self.result
    }

    fn advance(&mut self, stage: TopUpStage) -> TopUpStage {
        match stage {
            TopUpStage::Refill => {
                if refill_account(&mut self.account, self.now) {
                    self.pending.push_back(PendingStep::Forfeit);
                }
                TopUpStage::ReturnTopUp
            }
            TopUpStage::ReturnTopUp => {
                self.return_top_up();
                TopUpStage::CloseWithheld(0)
            }
            TopUpStage::CloseWithheld(index) if index < self.account.leases.len() => {
                self.close_withheld(index);
                TopUpStage::CloseWithheld(index + 1)
            }
            TopUpStage::CloseWithheld(_) => TopUpStage::FindLease,
            TopUpStage::FindLease => self.find_lease(),
            TopUpStage::OpenLease => self.open_lease(),
            TopUpStage::Debit(index, is_new) => {
                self.debit(index, is_new);
                TopUpStage::End
            }
            TopUpStage::End => TopUpStage::End,
        }
    }

    fn close(&mut self, index: usize) {
        if !self.account.leases[index].closed {
            self.pending.push_back(PendingStep::Close(index));
        }
    }

    /// Returns a top-up that was not added to a lease, and closes the lease if it has ended.
    fn return_top_up(&mut self) {
        let CreditAccount { credits, leases, .. } = &mut self.account;
        let is_observed = |lease: &Lease| lease.lease_number == self.observed.lease_number;
        let Some(at) = leases.iter().position(is_observed) else { return };
        let (amount, is_over) = match self.observed.problem {
            LeaseProblem::Insufficient => (0, false),
            LeaseProblem::Closed { block: amount } => (amount, true),
            LeaseProblem::TopUpRejected { block: amount, is_lost } => (amount, is_lost),
        };
        let lease = &mut leases[at];
        // A lease that was forfeited meanwhile grants nothing: its top-ups are void. A top-up that is reported as not added may
        // have been added after all, and spent: a lease that is closed then returns the rest.
        let spent = lease.spent.max(self.observed.spent);
        let amount = if lease.granted - spent < amount { 0 } else { amount };
        lease.granted -= amount;
        credits.balance = credits.balance.saturating_add(amount);
        let is_withheld = lease.withheld_at.is_some();
        if !is_withheld && is_over {
            self.close(at);
        } else if is_withheld && amount > 0 {
            self.pending.push_back(PendingStep::Write(at));
        }
    }

    /// Withholds a lease of another Redis generation: its credits can be neither spent nor accounted for here. Closes a
    /// withheld lease of this generation. Leases of other regions are left to their replicas.
    fn close_withheld(&mut self, index: usize) {
        let CreditAccount { credits, leases, database_time } = &mut self.account;
        let lease = &mut leases[index];
        if !self.replica.region.contains(&lease.region) {
            return;
        }
        let is_of_this_generation = lease.redis_generation == self.observed.redis_generation;
        if !is_of_this_generation && lease.withheld_at.is_none() {
            lease.withheld_at = Some(*database_time);
            // A new lease number: no replica learns of the old lease any more.
            credits.last_lease_number += 1;
            self.pending.push_back(PendingStep::Upsert(index));
        } else if is_of_this_generation && lease.withheld_at.is_some() {
            self.close(index);
        }
    }

    /// Finds this generation's lease among those of the account.
    fn find_lease(&mut self) -> TopUpStage {
        let is_open = |lease: &Lease| {
            self.replica.region.contains(&lease.region)
                && lease.redis_generation == self.observed.redis_generation
                && lease.withheld_at.is_none()
        };
        match self.account.leases.iter().rposition(is_open) {
            Some(at) if self.account.leases[at].granted < LEASE_GRANTED_MAX => {
                TopUpStage::Debit(at, false)
            }
            Some(at) => {
                self.close(at);
                TopUpStage::OpenLease
            }
            None => TopUpStage::OpenLease,
        }
    }

    fn open_lease(&mut self) -> TopUpStage {
        let CreditAccount { credits, leases, database_time } = &mut self.account;
        credits.last_lease_number += 1;
        leases.push(Lease {
            lease_number: credits.last_lease_number,
            redis_generation: self.observed.redis_generation,
            granted: 0,
            spent: 0,
            opened_at: *database_time,
            topped_up_at: *database_time,
            topped_up_by: self.replica.id.to_owned(),
            withheld_at: None,
            closed: false,
            region: self.replica.region.name.clone(),
        });
        TopUpStage::Debit(leases.len() - 1, true)
    }

    fn debit(&mut self, at: usize, is_new: bool) {
        let Self { observed, cost, .. } = self;
        let (observed, cost) = (*observed, *cost);
        let account = &mut self.account;
        let lease = &mut account.leases[at];
        let demand = estimate_demand(lease, observed, account.database_time);
        let is_observed = lease.lease_number == observed.lease_number;
        if is_observed {
            lease.spent = lease.spent.max(observed.spent);
        }
        let (need, in_flight) = match is_observed {
            true => {
                ((cost - observed.units).max(0), (lease.unspent_units() - observed.units).max(0))
            }
            false => (cost, lease.unspent_units()),
        };
        let left = account.credits.balance.saturating_add(account.leased_units());
        let own = account.leases.iter().filter(|lease| self.replica.region.contains(&lease.region));
        let leased = own.map(Lease::unspent_units).fold(0, i64::saturating_add);
        let balance = account.credits.balance;
        let amount = top_up_amount((balance, left, leased), need, cost, demand);
        // What is in flight may never arrive. It counts as part of a balance that is too small without it.
        let counted = if balance < need { in_flight } else { 0 };
        let is_covered = is_observed && counted > 0 && balance.saturating_add(counted) >= need;
        let lease = &mut account.leases[at];
        let (lease_number, granted_before) = (lease.lease_number, lease.granted - counted);
        let Some(amount) = amount.filter(|_| !is_covered) else {
            // Credits that returned to the account are kept.
            if !is_new {
                self.pending.push_back(PendingStep::Upsert(at));
            }
            self.pending.push_back(PendingStep::UpdateBalance);
            let may_change = need <= LEASE_GRANTED_MAX
                && (is_covered || leased - in_flight + need <= leased_max(left, cost));
            self.result = match may_change && !is_new {
                true => TopUpResult::TopUpsInFlight(
                    lease_number,
                    self.build_top_up((granted_before, 0), counted, is_new),
                ),
                false => TopUpResult::Withheld,
            };
            return;
        };
        lease.granted += amount;
        // A lease whose top-up may be lost becomes idle although it is asked for: its close returns the top-up.
        if counted == 0 {
            (lease.topped_up_at, lease.topped_up_by) =
                (account.database_time, self.replica.id.to_owned());
        }
        account.credits.balance -= amount;
        self.pending.extend([PendingStep::UpdateBalance, PendingStep::Upsert(at)]);
        let top_up = self.build_top_up((granted_before, amount), counted, is_new);
        self.result = TopUpResult::Lease(lease_number, top_up);
    }

    /// Builds the top-up that a lease receives, with the state of its account. `in_flight`: the credits of earlier top-ups
    /// that count as part of the balance, and not as granted. If they have arrived meanwhile, the lease knows better.
    fn build_top_up(
        &self,
        (granted_before, amount): (i64, i64),
        in_flight: i64,
        creates_lease: bool,
    ) -> TopUp {
        let credits = self.account.credits;
        let refill_at = credits.refill.map_or(Timestamp(SCRIPT_BALANCE_MAX), |refill| {
            refill::next_refill_at(&refill, self.now)
        });
        TopUp {
            redis_generation: self.observed.redis_generation,
            creates_lease,
            granted_before,
            top_up: amount,
            account_balance: credits.balance.saturating_add(in_flight).min(SCRIPT_BALANCE_MAX),
            refill_at,
        }
    }
}

/// Sets the balance if a refill period has begun. Credits in earlier leases are forfeited; leases that a replica may
/// still spend from are kept. Returns whether the leases must be forfeited in the database too.
pub fn refill_account(account: &mut CreditAccount, now: Timestamp) -> bool {
    let credits = refill::apply_refill(account.credits, now);
    if credits.refilled_period == account.credits.refilled_period {
        return false;
    }
    account.leases.retain(|lease| !lease.closed);
    for lease in &mut account.leases {
        lease.granted = lease.spent;
        lease.withheld_at.get_or_insert(account.database_time);
    }
    let refilled = match Safeguard::RefillOnce.is_disabled() {
        true => account.credits.refilled_period,
        false => credits.refilled_period,
    };
    // A new lease number: a replica that still uses the old lease finds it ended.
    account.credits = Credits {
        last_lease_number: credits.last_lease_number + 1,
        refilled_period: refilled,
        ..credits
    };
    true
}
