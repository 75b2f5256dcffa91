//! Provides time. This is the only module that reads the machine's clock.
//!
//! Other modules receive a [`Clock`], so that a test can set it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// A point in time, in milliseconds since the Unix epoch.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    sqlx::Type,
    schemars::JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
#[sqlx(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns the time `ms` milliseconds later, saturating at the bounds.
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// The machine's clock, or one that a test sets.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    #[default]
    System,
    Fixed(Arc<AtomicI64>),
}

impl Clock {
    /// Returns a clock that stays at `now` until [`Clock::advance_ms`] moves it.
    pub fn fixed_at(now: Timestamp) -> Self {
        Self::Fixed(Arc::new(AtomicI64::new(now.0)))
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => system_now(),
            Self::Fixed(now) => Timestamp(now.load(Ordering::SeqCst)),
        }
    }

    /// Returns the time that a test has set, or `None` for the machine's clock.
    pub fn fixed_time(&self) -> Option<Timestamp> {
        match self {
            Self::System => None,
            Self::Fixed(_) => Some(self.now()),
        }
    }

    /// Moves a fixed clock, also backward. Has no effect on the machine's clock.
    pub fn advance_ms(&self, ms: i64) {
        if let Self::Fixed(now) = self {
            now.fetch_add(ms, Ordering::SeqCst);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
fn system_now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Measures the time since it was created, independent of changes to the system clock. It continues while the process
/// is stopped.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::new_without_default, reason = "creating one starts it")]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    pub fn new() -> Self {
        Self(Instant::now())
    }

    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    pub fn elapsed_us(&self) -> i64 {
        i64::try_from(self.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    pub fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}
