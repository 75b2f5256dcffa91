//! Decides how leases are closed: what is asked of Redis, and what is written to the account for each result.
//!
//! Nothing here calls Redis or the database: the owner of the transaction performs each [`AccountStep`].

use std::time::Duration;

use foundation::clock::Timestamp;
use foundation::fault_injection::Safeguard;
use foundation::model::{CreditAccount, Credits, Lease};
use limiter::CloseResult;

/// Selects the leases to close.
#[derive(Debug, Clone, Copy)]
pub enum CloseScope {
    /// Leases that have not been spent from for this long.
    Idle(Duration),
    All,
    /// All leases; those for which Redis cannot be reached are withheld, so that every replica reports them.
    AllOrWithhold,
}

/// What a transaction that has locked an account does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountStep<'a> {
    /// Forfeit the credits in the leases of the key.
    ForfeitLeases,
    /// Close the lease in Redis, unless it was spent from within `idle`, and pass the result on.
    CloseLease {
        lease: &'a Lease,
        idle: Duration,
    },
    UpsertLease(&'a Lease),
    DeleteLease(&'a Lease),
    UpdateBalance(&'a Credits),
    /// Nothing is left to do. The transaction may be committed.
    End,
}

impl<'a> AccountStep<'a> {
    /// Writes a lease, or deletes it if it is closed and no credit of it is missing.
    pub fn write(lease: &'a Lease) -> Self {
        match lease.closed && lease.unspent_units() == 0 {
            true => Self::DeleteLease(lease),
            false => Self::UpsertLease(lease),
        }
    }
}

/// The result of closing leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CloseSummary {
    /// The unspent credits of the closed leases.
    pub returned_credits: i64,
    /// Whether a lease was withheld that had been in use.
    pub has_withheld: bool,
    /// Whether a close could not be confirmed.
    pub has_unconfirmed: bool,
}

impl CloseSummary {
    /// Adds the result to the account.
    pub fn add_to(&self, account: &mut CreditAccount) {
        let credits = &mut account.credits;
        credits.balance = credits.balance.saturating_add(self.returned_credits);
        credits.last_lease_number += i64::from(self.has_withheld);
    }

    fn add(&mut self, one: Self) {
        self.returned_credits = self.returned_credits.saturating_add(one.returned_credits);
        self.has_withheld |= one.has_withheld;
        self.has_unconfirmed |= one.has_unconfirmed;
    }
}

/// Applies the result of closing a lease, which must be written next. `now` is the database's time.
pub fn apply_close(lease: &mut Lease, result: CloseResult, now: Timestamp) -> CloseSummary {
    let mut summary = CloseSummary::default();
    let was_withheld = lease.withheld_at.is_some();
    match result {
        CloseResult::InUse => lease.topped_up_at = now,
        CloseResult::WrongGeneration => {}
        CloseResult::NotFound => lease.closed = true,
        CloseResult::Closed { spent_units: spent } => {
            // A forfeited lease returns nothing: it grants no more than was spent.
            summary.returned_credits = lease.granted.saturating_sub(spent).max(0);
            if !Safeguard::CloseOnce.is_disabled() {
                (lease.granted, lease.closed) = (lease.spent, true);
            }
        }
    }
    if result != CloseResult::InUse {
        lease.withheld_at.get_or_insert(now);
        let is_settled = matches!(result, CloseResult::Closed { .. });
        summary.has_withheld = !was_withheld && !is_settled;
    }
    summary.has_unconfirmed = !lease.closed;
    summary
}

/// The closing of several leases of a key, in their order. Leases that cannot be reached stay as they are, except with
/// [`CloseScope::AllOrWithhold`].
#[derive(Debug)]
pub struct LeaseClosing {
    scope: CloseScope,
    /// The database's time.
    now: Timestamp,
    /// The lease that is next.
    index: usize,
    /// Whether the lease at the index was closed and must be written.
    is_write_due: bool,
    /// The regions whose Redis cannot be reached.
    regions_away: Vec<String>,
    summary: CloseSummary,
}

impl LeaseClosing {
    pub fn new(scope: CloseScope, now: Timestamp) -> Self {
        let summary = CloseSummary::default();
        Self { scope, now, index: 0, is_write_due: false, regions_away: Vec::new(), summary }
    }

    /// Returns what to do next. `leases` must be the same in all calls.
    pub fn next_step<'a>(&mut self, leases: &'a mut [Lease]) -> AccountStep<'a> {
        while self.index < leases.len() {
            let index = self.index;
            let is_away = self.regions_away.contains(&leases[index].region);
            if !self.is_write_due && !is_away && !leases[index].closed {
                let lease = &leases[index];
                return AccountStep::CloseLease { lease, idle: self.idle_min(lease) };
            }
            self.index += 1;
            if std::mem::take(&mut self.is_write_due) {
                return AccountStep::write(&leases[index]);
            }
            let is_withheld = matches!(self.scope, CloseScope::AllOrWithhold);
            if is_away && is_withheld && !leases[index].is_ended() {
                leases[index].withheld_at = Some(self.now);
                self.summary.has_withheld = true;
                return AccountStep::UpsertLease(&leases[index]);
            }
        }
        AccountStep::End
    }

    fn idle_min(&self, lease: &Lease) -> Duration {
        match self.scope {
            CloseScope::Idle(idle) if lease.withheld_at.is_none() => idle,
            CloseScope::Idle(_) | CloseScope::All | CloseScope::AllOrWithhold => Duration::ZERO,
        }
    }

    /// Applies the result of [`AccountStep::CloseLease`]. Returns the credits that return to the account.
    pub fn apply_result(&mut self, leases: &mut [Lease], result: CloseResult) -> i64 {
        let Some(lease) = leases.get_mut(self.index) else { return 0 };
        let one = apply_close(lease, result, self.now);
        self.summary.add(one);
        self.is_write_due = true;
        one.returned_credits
    }

    /// Records that the Redis of the lease cannot be reached, so that no further lease of its region can be closed.
    pub fn record_outage(&mut self, leases: &[Lease]) {
        self.summary.has_unconfirmed = true;
        self.regions_away.extend(leases.get(self.index).map(|lease| lease.region.clone()));
    }

    /// Returns what has been closed so far.
    pub fn summary(&self) -> CloseSummary {
        self.summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(5_000);

    fn lease(lease_number: i64, granted: i64) -> Lease {
        Lease {
            lease_number,
            redis_generation: 1,
            granted,
            spent: 0,
            opened_at: Timestamp(0),
            topped_up_at: Timestamp(0),
            topped_up_by: "rep_a".into(),
            withheld_at: None,
            closed: false,
            region: String::new(),
        }
    }

    /// Closes leases with these results; `None` is an outage. Returns the steps.
    fn close(
        scope: CloseScope,
        leases: &mut [Lease],
        results: &[Option<CloseResult>],
    ) -> (Vec<String>, CloseSummary) {
        let (mut closing, mut results) = (LeaseClosing::new(scope, NOW), results.iter());
        let mut steps = Vec::new();
        loop {
            match closing.next_step(leases) {
                AccountStep::End => break,
                AccountStep::CloseLease { lease, idle } => {
                    steps.push(format!("close {} {}", lease.lease_number, idle.as_millis()));
                    match results.next().expect("a result") {
                        Some(result) => drop(closing.apply_result(leases, *result)),
                        None => closing.record_outage(leases),
                    }
                }
                AccountStep::UpsertLease(lease) => {
                    steps.push(format!("upsert {}", lease.lease_number));
                }
                AccountStep::DeleteLease(lease) => {
                    steps.push(format!("delete {}", lease.lease_number));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(results.next().is_none());
        (steps, closing.summary())
    }

    #[test]
    fn lease_returns_what_redis_has_not_spent_when_closed() {
        let mut leases = [lease(1, 100), lease(2, 50)];
        let closed = |spent_units| Some(CloseResult::Closed { spent_units });

        let (steps, summary) = close(CloseScope::All, &mut leases, &[closed(30), closed(60)]);

        assert_eq!(steps, ["close 1 0", "delete 1", "close 2 0", "delete 2"]);
        let expected = CloseSummary { returned_credits: 70, ..CloseSummary::default() };
        assert_eq!(summary, expected, "a forfeited lease grants no more than was spent");
    }

    #[test]
    fn lease_returns_nothing_when_a_duplicated_close_is_applied_again() {
        let mut lease = lease(1, 100);
        let closed = CloseResult::Closed { spent_units: 30 };
        assert_eq!(apply_close(&mut lease, closed, NOW).returned_credits, 70);

        assert_eq!(apply_close(&mut lease, closed, NOW).returned_credits, 0);
        assert_eq!(close(CloseScope::All, &mut [lease], &[]).0, [""; 0], "it is closed already");
    }

    #[test]
    fn lease_stays_open_when_in_use() {
        let mut leases = [lease(1, 100)];
        let idle = CloseScope::Idle(Duration::from_millis(60));

        let (steps, summary) = close(idle, &mut leases, &[Some(CloseResult::InUse)]);

        assert_eq!(steps, ["close 1 60", "upsert 1"]);
        assert_eq!((leases[0].withheld_at, leases[0].topped_up_at), (None, NOW));
        assert!(summary.has_unconfirmed && !summary.has_withheld);
    }

    #[test]
    fn lease_is_withheld_when_another_redis_generation_replies() {
        let mut leases = [lease(1, 100), lease(2, 100)];
        leases[1].withheld_at = Some(Timestamp(1));
        let wrong = Some(CloseResult::WrongGeneration);

        let (steps, summary) =
            close(CloseScope::Idle(Duration::from_mins(1)), &mut leases, &[wrong, wrong]);

        assert_eq!(steps, ["close 1 60000", "upsert 1", "close 2 0", "upsert 2"]);
        assert_eq!((leases[0].withheld_at, leases[0].closed), (Some(NOW), false));
        assert_eq!(leases[1].withheld_at, Some(Timestamp(1)));
        assert!(summary.has_unconfirmed && summary.has_withheld);
        assert_eq!(summary.returned_credits, 0);
    }

    #[test]
    fn lease_number_rises_only_when_the_lease_was_not_withheld_before() {
        for (withheld_at, result, expected) in [
            (None, CloseResult::WrongGeneration, true),
            (Some(Timestamp(1)), CloseResult::WrongGeneration, false),
            (None, CloseResult::NotFound, true),
            (Some(Timestamp(1)), CloseResult::NotFound, false),
        ] {
            let mut lease = Lease { withheld_at, ..lease(1, 100) };

            let summary = apply_close(&mut lease, result, NOW);

            assert_eq!(summary.has_withheld, expected, "{withheld_at:?}, {result:?}");
        }
    }

    #[test]
    fn lease_without_unspent_credits_is_kept_until_it_is_closed() {
        let mut leases = [Lease { spent: 100, ..lease(1, 100) }];

        let (steps, summary) =
            close(CloseScope::All, &mut leases, &[Some(CloseResult::WrongGeneration)]);

        assert_eq!(steps, ["close 1 0", "upsert 1"], "a replica may still spend from it");
        assert!(summary.has_unconfirmed);
    }

    #[test]
    fn lost_lease_is_withheld_and_closed() {
        let mut leases = [lease(1, 100)];

        let (steps, summary) = close(CloseScope::All, &mut leases, &[Some(CloseResult::NotFound)]);

        assert_eq!(steps, ["close 1 0", "upsert 1"], "its credits are missing");
        assert!(leases[0].closed && leases[0].withheld_at == Some(NOW));
        assert!(summary.has_withheld && !summary.has_unconfirmed);
    }

    #[test]
    fn remaining_leases_are_withheld_only_if_the_scope_says_so_when_redis_is_unreachable() {
        let closed = Some(CloseResult::Closed { spent_units: 0 });
        let all = || [lease(1, 10), lease(2, 10), lease(3, 10)];
        let mut leases = all();
        leases[2].withheld_at = Some(Timestamp(1));
        let (steps, summary) = close(CloseScope::AllOrWithhold, &mut leases, &[closed, None]);
        assert_eq!(steps, ["close 1 0", "delete 1", "close 2 0", "upsert 2"]);
        assert_eq!(leases[1].withheld_at, Some(NOW));
        let expected =
            CloseSummary { returned_credits: 10, has_withheld: true, has_unconfirmed: true };
        assert_eq!(summary, expected);

        let mut leases = all();
        let (steps, summary) = close(CloseScope::All, &mut leases, &[closed, None]);
        assert_eq!(steps, ["close 1 0", "delete 1", "close 2 0"]);
        assert!(summary.has_unconfirmed && !summary.has_withheld);
        assert_eq!(leases[1..], all()[1..]);
    }

    #[test]
    fn leases_of_other_regions_are_closed_when_one_region_is_unreachable() {
        let closed = Some(CloseResult::Closed { spent_units: 4 });
        let of = |number, region: &str| Lease { region: region.into(), ..lease(number, 10) };
        let all = || [of(1, "us"), of(2, "eu"), of(3, "us"), of(4, "ap")];

        let mut leases = all();
        let (steps, summary) = close(CloseScope::All, &mut leases, &[None, closed, closed]);
        assert_eq!(steps, ["close 1 0", "close 2 0", "delete 2", "close 4 0", "delete 4"]);
        assert!(summary.has_unconfirmed && !summary.has_withheld);
        assert_eq!(summary.returned_credits, 12);

        let mut leases = all();
        let (steps, summary) =
            close(CloseScope::AllOrWithhold, &mut leases, &[None, closed, closed]);
        let expected =
            ["close 1 0", "upsert 1", "close 2 0", "delete 2", "upsert 3", "close 4 0", "delete 4"];
        assert_eq!(steps, expected);
        assert!(summary.has_unconfirmed && summary.has_withheld);
    }
}
