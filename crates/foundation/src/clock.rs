//! Time: the only place that asks the machine what time it is.
//!
//! Everything else is handed a [`Clock`], so that a test can turn it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// A moment, in milliseconds since the unix epoch.
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
    /// This moment and `ms` milliseconds more; stays at the last moment there is.
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// The clock of the machine, or one that a test sets.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    #[default]
    System,
    Set(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands still at `now` until [`Clock::advance_ms`] moves it.
    pub fn fixed_at(now: Timestamp) -> Self {
        Self::Set(Arc::new(AtomicI64::new(now.0)))
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => system_now(),
            Self::Set(now) => Timestamp(now.load(Ordering::SeqCst)),
        }
    }

    /// The moment a test has set; nothing on the machine's clock.
    pub fn fixed_time(&self) -> Option<Timestamp> {
        match self {
            Self::System => None,
            Self::Set(_) => Some(self.now()),
        }
    }

    /// Moves a set clock, backwards too; the machine's clock is not touched.
    pub fn advance_ms(&self, ms: i64) {
        if let Self::Set(now) = self {
            now.fetch_add(ms, Ordering::SeqCst);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
fn system_now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Milliseconds that passed since a fixed moment of this process, whatever the clock on the wall does.
/// It runs on while the process is stopped.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::new_without_default, reason = "starting one is an act")]
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
