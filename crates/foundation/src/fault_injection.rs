//! Disables safeguards in tests, one at a time, to show the fault that each prevents.
//!
//! `KEYWARD_DISABLE_SAFEGUARD` names one. Only a build with debug assertions reads it, so it has no effect on a release
//! binary. See `tests/nemesis` and `tests/simulation`.

use std::sync::LazyLock;

/// A safeguard that a test can disable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safeguard {
    /// A lease is void in any other Redis generation.
    FenceGeneration,
    /// A top-up is debited durably before it can be spent.
    DebitFirst,
    /// Windows are checked and consumed in one atomic step.
    AtomicConsume,
    /// A change of the balance closes the lease.
    CloseLease,
    /// A refill records the period that it was for.
    RefillOnce,
    /// In an outage each replica has its share of a limit.
    Share,
    /// A call to Redis has a timeout.
    Timeout,
    /// The timeout does not count time in which this process cannot run.
    RunTime,
    /// What is admitted without Redis is bounded by the last known remaining amount, and consumed in Redis when it
    /// returns.
    Charge,
    /// A row that could not be read is not treated as one that does not exist.
    Absent,
    /// A gap in the announcements is detected.
    Gap,
    /// Announcements are proof only while more than half of all replicas read them.
    Majority,
    /// A change is committed only when every replica that relies on announcements has its intent.
    Reach,
    /// An announced change is committed. Without this safeguard the process ends before the commit, as if it had been
    /// killed.
    Commit,
    /// The result of a change is announced. Without this safeguard the process ends after the commit, as if it had been
    /// killed.
    Result,
    /// A value in Redis whose format is of a later version is not interpreted.
    Format,
    /// The leased part of a balance is bounded, over all replicas.
    LeaseBound,
    /// A lease that another Redis does not know is not closed.
    ProvenClosed,
    /// A reply about a lease is not trusted after the lease has been reported.
    Reported,
    /// A lease is returned to the account only when every replica that may know of it has reported it.
    EveryReport,
    /// A replica that cannot read the change log does not use what an open intent names.
    Intent,
    /// A reader that skips rows of the change log treats everything as changed.
    Skip,
    /// A reader queries rows of the change log again that were not visible when it read later ones.
    MissingRows,
    /// A value has the read version of the moment before it was read.
    ReadVersion,
    /// A row that was read on a standby has the read version of the last heartbeat that the standby has.
    StandbyPosition,
    /// A value that was read a while ago is used only while it is proved that no change was missed.
    Trust,
    /// The writer of a change does not use what it has cached before.
    OwnChange,
    /// A replica has a queue of direct debits for each key.
    DebitQueue,
    /// Credits are returned except to accounts that another transaction has locked.
    Claim,
    /// A lease that was closed returns its credits once.
    CloseOnce,
    /// A top-up whose reply was lost is not sent again.
    TopUpOnce,
    /// A transaction whose account is locked is not retried after its deadline.
    RetryDeadline,
    /// A home counts the units that it grants.
    GrantCounted,
    /// A grant whose reply was lost is not added again.
    GrantOnce,
    /// A window lease ends before its window.
    LeaseEnd,
    /// Units are taken out of a window lease before they are given back.
    TakenFirst,
    /// While a home moves, each side counts its own windows only.
    HomeBounds,
    /// A window whose counter has moved is closed where it was counted.
    ClosedWindow,
    /// The first window after a move begins with the count of the one before.
    MovedCount,
}

static DISABLED_SAFEGUARD: LazyLock<Option<Safeguard>> = LazyLock::new(|| {
    let name = std::env::var("KEYWARD_DISABLE_SAFEGUARD").ok()?;
    Some(match name.as_str() {
        "fence" => Safeguard::FenceGeneration,
        "debit-first" => Safeguard::DebitFirst,
        "atomic-consume" => Safeguard::AtomicConsume,
        "close-lease" => Safeguard::CloseLease,
        "refill-once" => Safeguard::RefillOnce,
        "share" => Safeguard::Share,
        "timeout" => Safeguard::Timeout,
        "run-time" => Safeguard::RunTime,
        "charge" => Safeguard::Charge,
        "absent" => Safeguard::Absent,
        "gap" => Safeguard::Gap,
        "majority" => Safeguard::Majority,
        "reach" => Safeguard::Reach,
        "commit" => Safeguard::Commit,
        "result" => Safeguard::Result,
        "format" => Safeguard::Format,
        "lease-bound" => Safeguard::LeaseBound,
        "proven-closed" => Safeguard::ProvenClosed,
        "reported" => Safeguard::Reported,
        "every-report" => Safeguard::EveryReport,
        "intent" => Safeguard::Intent,
        "skip" => Safeguard::Skip,
        "missing-rows" => Safeguard::MissingRows,
        "read-version" => Safeguard::ReadVersion,
        "standby-position" => Safeguard::StandbyPosition,
        "trust" => Safeguard::Trust,
        "own-change" => Safeguard::OwnChange,
        "debit-queue" => Safeguard::DebitQueue,
        "claim" => Safeguard::Claim,
        "close-once" => Safeguard::CloseOnce,
        "top-up-once" => Safeguard::TopUpOnce,
        "retry-deadline" => Safeguard::RetryDeadline,
        "grant-counted" => Safeguard::GrantCounted,
        "grant-once" => Safeguard::GrantOnce,
        "lease-end" => Safeguard::LeaseEnd,
        "taken-first" => Safeguard::TakenFirst,
        "home-bounds" => Safeguard::HomeBounds,
        "closed-window" => Safeguard::ClosedWindow,
        "moved-count" => Safeguard::MovedCount,
        other => panic!("KEYWARD_DISABLE_SAFEGUARD is {other:?}, which is not a safeguard"),
    })
});

impl Safeguard {
    /// Returns whether a test has disabled this safeguard; `false` in a build without debug assertions.
    #[inline]
    pub fn is_disabled(self) -> bool {
        cfg!(debug_assertions) && *DISABLED_SAFEGUARD == Some(self)
    }

    /// Aborts the process if a test has disabled this safeguard.
    pub fn abort_if_disabled(self) {
        if self.is_disabled() {
            std::process::abort();
        }
    }
}
