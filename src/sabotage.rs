//! Safeguards that the tests switch off, one at a time, to show that they would be missed.
//!
//! `KEYWARD_SABOTAGE` names one; only a build with debug assertions looks at it, so no release binary can be
//! talked into anything. See `tests/nemesis`.

/// A safeguard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safeguard {
    /// A purse is void in any other life of its Redis.
    Fence,
    /// A block is debited durably before it can be spent.
    DebitFirst,
    /// Windows are checked and taken in one act.
    AtomicTake,
    /// A change of the balance closes the purse.
    ClosePurse,
    /// A refill remembers the period that it was for.
    RefillOnce,
    /// In an outage each replica has its share of a limit.
    Share,
    /// A call to Redis has an end.
    Timeout,
    /// What could not be read is not taken for what does not exist.
    Absent,
}

#[cfg(debug_assertions)]
mod switch {
    use std::sync::LazyLock;

    use super::Safeguard;

    static OFF: LazyLock<Option<Safeguard>> = LazyLock::new(|| {
        let name = std::env::var("KEYWARD_SABOTAGE").ok()?;
        Some(match name.as_str() {
            "fence" => Safeguard::Fence,
            "debit-first" => Safeguard::DebitFirst,
            "atomic-take" => Safeguard::AtomicTake,
            "close-purse" => Safeguard::ClosePurse,
            "refill-once" => Safeguard::RefillOnce,
            "share" => Safeguard::Share,
            "timeout" => Safeguard::Timeout,
            "absent" => Safeguard::Absent,
            other => panic!("KEYWARD_SABOTAGE is {other:?}, which names no safeguard"),
        })
    });

    impl Safeguard {
        /// Whether a test has switched it off.
        pub fn is_off(self) -> bool {
            *OFF == Some(self)
        }
    }
}

#[cfg(not(debug_assertions))]
impl Safeguard {
    /// Never, in a release.
    pub fn is_off(self) -> bool {
        false
    }
}
