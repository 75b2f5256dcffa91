//! Defines how long a caller waits before a retry can succeed.

use std::fmt::{self, Display, Formatter};

use crate::clock::Timestamp;

/// How long a caller waits before a retry can succeed, in whole seconds, at least one. Formatted as `5 seconds` or
/// `14 minutes`, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAfter(i64);

impl RetryAfter {
    /// Returns a wait of this many milliseconds, rounded up to a second.
    pub fn from_ms(ms: i64) -> Self {
        Self(ms.max(1).saturating_add(999) / 1000)
    }

    /// Returns the wait until `at`, rounded up to a second.
    pub fn until(at: Timestamp, now: Timestamp) -> Self {
        Self::from_ms(at.0.saturating_sub(now.0))
    }

    /// Returns the number of seconds, the value of the header `Retry-After`.
    pub fn seconds(self) -> i64 {
        self.0
    }
}

impl Display for RetryAfter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (number, unit) = if self.0 < 60 {
            (self.0, "second")
        } else {
            (self.0.saturating_add(59) / 60, "minute")
        };
        write!(f, "{number} {unit}{}", if number == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_rounded_up_to_seconds_and_minutes() {
        for (ms, seconds, text) in [
            (i64::MIN, 1, "1 second"),
            (0, 1, "1 second"),
            (1_000, 1, "1 second"),
            (1_001, 2, "2 seconds"),
            (59_000, 59, "59 seconds"),
            (59_001, 60, "1 minute"),
            (60_001, 61, "2 minutes"),
            (900_000, 900, "15 minutes"),
        ] {
            let wait = RetryAfter::until(Timestamp(5_000).plus_ms(ms), Timestamp(5_000));
            assert_eq!((wait.seconds(), wait.to_string().as_str()), (seconds, text), "{ms}");
        }
    }
}
