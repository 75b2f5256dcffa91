//! Safeguards that the tests switch off, one at a time, to show that they would be missed.
//!
//! `KEYWARD_DISABLE_SAFEGUARD` names one; only a build with debug assertions looks at it, so no release binary can be
//! talked into anything. See `tests/nemesis`.

/// A safeguard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safeguard {
    /// A purse is void in any other life of its Redis.
    FenceGeneration,
    /// A block is debited durably before it can be spent.
    DebitFirst,
    /// Windows are checked and taken in one act.
    AtomicConsume,
    /// A change of the balance closes the purse.
    CloseLease,
    /// A refill remembers the period that it was for.
    RefillOnce,
    /// In an outage each replica has its share of a limit.
    Share,
    /// A call to Redis has an end.
    Timeout,
    /// That end does not come while this process cannot run.
    RunTime,
    /// What is admitted without Redis is bounded by what was left, and consumed when it returns.
    Charge,
    /// What could not be read is not taken for what does not exist.
    Absent,
    /// A gap in the announcements is noticed.
    Gap,
    /// Announcements prove something while more than half of all replicas read them.
    Majority,
    /// A change is committed only when every replica that relies on announcements has got one.
    Reach,
    /// A change that was announced is committed. Without it the process ends before the commit, as if it had been killed.
    Commit,
    /// The result of a change is announced. Without it the process ends after the commit, as if it had been killed.
    Result,
    /// Of a value in Redis whose format is of a later version nothing is known.
    Format,
    /// What is leased of a balance is bounded, over all replicas.
    LeaseBound,
    /// A lease that another Redis does not know is not closed.
    ProvenClosed,
    /// No answer about a lease is trusted once it has been reported.
    Reported,
    /// A lease is given back only when every replica has reported it that may know of it.
    EveryReport,
    /// What somebody is about to change is unknown to a replica that cannot read the change log.
    Intent,
    /// A reader that leaves out rows of the change log takes everything for changed.
    Skip,
    /// A replica has a queue of direct debits for each key.
    DebitQueue,
    /// Credits are given back without the accounts that somebody holds.
    Claim,
}

#[cfg(debug_assertions)]
mod switch {
    use std::sync::LazyLock;

    use super::Safeguard;

    static OFF: LazyLock<Option<Safeguard>> = LazyLock::new(|| {
        let name = std::env::var("KEYWARD_DISABLE_SAFEGUARD").ok()?;
        Some(match name.as_str() {
            "fence" => Safeguard::FenceGeneration,
            "debit-first" => Safeguard::DebitFirst,
            "atomic-take" => Safeguard::AtomicConsume,
            "close-purse" => Safeguard::CloseLease,
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
            "debit-queue" => Safeguard::DebitQueue,
            "claim" => Safeguard::Claim,
            other => panic!("KEYWARD_DISABLE_SAFEGUARD is {other:?}, which names no safeguard"),
        })
    });

    impl Safeguard {
        /// Whether a test has switched it off.
        pub fn is_disabled(self) -> bool {
            *OFF == Some(self)
        }

        /// Ends the process where a test has switched it off.
        pub fn die(self) {
            if self.is_disabled() {
                std::process::abort();
            }
        }
    }
}

#[cfg(not(debug_assertions))]
impl Safeguard {
    /// Never, in a release.
    pub fn is_disabled(self) -> bool {
        false
    }

    /// Never, in a release.
    pub fn die(self) {}
}
