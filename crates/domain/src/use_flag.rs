//! The flag of a cached row that records its use.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether something has been used since the last flush.
#[derive(Debug, Default)]
pub struct UseFlag(AtomicBool);

impl UseFlag {
    /// Sets the flag. Returns whether this is the first use since the last [`UseFlag::reset`].
    pub fn mark_used(&self) -> bool {
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Relaxed)
    }

    /// Clears the flag.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
