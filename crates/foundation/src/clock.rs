//! Provides time. This is the only module that reads the machine's clock.
//!
//! Other modules receive a [`Clock`], so that a test can set it. Code whose decisions depend on how much time has passed
//! receives the time as a [`Monotonic`] value, so that tests and simulations choose it.

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The length of a minute in milliseconds.
pub const MINUTE_MS: i64 = 60_000;
/// The length of an hour in milliseconds.
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
/// The length of a day in milliseconds.
pub const DAY_MS: i64 = 24 * HOUR_MS;

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
    sqlx_macros::Type,
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

    /// Returns the time as one that has a date: those before the year -9999 and after 9999 become the first and the last one.
    pub fn to_calendar(self) -> jiff::Timestamp {
        let bound = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        jiff::Timestamp::from_millisecond(self.0).unwrap_or(bound)
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

/// A point in time that never goes backward, independent of changes to the system clock: the time since a moment before
/// the first call of [`Monotonic::now`] in this process. It continues while the process is stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(Duration);

impl Monotonic {
    /// Returns the current time of this process.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    pub fn now() -> Self {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        let start = *START;
        Self(Instant::now().saturating_duration_since(start))
    }

    /// Returns the time this many milliseconds after the start.
    pub const fn from_ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// Returns the time since the start, in whole milliseconds.
    pub fn as_ms(self) -> i64 {
        i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns the time that has passed since `earlier`; zero if that is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Monotonic {
    type Output = Self;

    /// Returns the time this much later, saturating at the bound.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl Sub<Duration> for Monotonic {
    type Output = Self;

    /// Returns the time this much earlier, but not before the start.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
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
