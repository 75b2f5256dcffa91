//! The sliding window as a pure function: the Rust equivalent of what `lua/consume.lua` does in Redis.
//!
//! Time is divided into windows of the limit's duration, counted from the Unix epoch. The effective count is everything
//! consumed in the current window, plus the share of the previous window that a window ending now would still cover.

use super::{EXACT_MAX, Window};

/// One counter: the number of its latest window, the amount consumed in it, and the amount consumed in the previous
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowCounter {
    pub number: i64,
    pub count: i64,
    pub previous_count: i64,
}

impl WindowCounter {
    /// Returns the counter at `now_ms`. If the clock went back, time stands still at the start of the latest window.
    pub fn from_stored(stored: Option<Self>, now_ms: i64, duration_ms: i64) -> Self {
        let number = now_ms / duration_ms;
        match stored {
            Some(counter) if counter.number >= number => counter,
            Some(counter) if counter.number == number - 1 => {
                Self { number, count: 0, previous_count: counter.count }
            }
            _ => Self { number, count: 0, previous_count: 0 },
        }
    }

    /// Returns the amount that counts against the limit at `now_ms`.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the script computes in doubles, and both must agree to the last unit"
    )]
    pub fn effective_count(&self, now_ms: i64, duration_ms: i64) -> i64 {
        let elapsed = (now_ms - self.number * duration_ms).max(0);
        let left = (duration_ms - elapsed) as f64;
        self.count + (self.previous_count as f64 * left / duration_ms as f64).floor() as i64
    }

    /// Returns when the counter no longer affects any window.
    pub fn expires_ms(&self, duration_ms: i64) -> i64 {
        (self.number + 2).saturating_mul(duration_ms)
    }
}

/// Returns whether a window with this effective count admits the cost. A limit of 0 admits nothing, not even a peek.
pub fn is_within_limit(window: &Window, effective_count: i64) -> bool {
    window.limit > 0 && effective_count + window.cost <= window.limit
}

/// Clamps a number to the range in which doubles are exact, because the script can only count in doubles.
pub fn clamp_to_exact(number: i64) -> i64 {
    number.clamp(0, EXACT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    #[test]
    fn effective_adds_share_of_previous_window_when_window_has_changed() {
        let counter = WindowCounter { number: 0, count: 10, previous_count: 0 };

        let counts: Vec<_> = [0, 15_000, 30_000, 59_999]
            .into_iter()
            .map(|into| {
                WindowCounter::from_stored(Some(counter), MINUTE + into, MINUTE)
                    .effective_count(MINUTE + into, MINUTE)
            })
            .collect();

        assert_eq!(counts, [10, 7, 5, 0]);
    }

    #[test]
    fn effective_is_zero_when_two_windows_have_passed() {
        let counter = WindowCounter { number: 0, count: 10, previous_count: 10 };

        assert_eq!(
            WindowCounter::from_stored(Some(counter), 2 * MINUTE, MINUTE)
                .effective_count(2 * MINUTE, MINUTE),
            0
        );
    }

    #[test]
    fn window_count_is_kept_when_clock_goes_back() {
        let counter = WindowCounter { number: 5, count: 10, previous_count: 4 };

        let back = WindowCounter::from_stored(Some(counter), MINUTE, MINUTE);

        assert_eq!(back.effective_count(MINUTE, MINUTE), 14);
    }

    #[test]
    fn peek_is_rejected_when_limit_is_zero() {
        let window = Window::new("", 0, MINUTE, 0);

        assert!(!is_within_limit(&window, 0));
    }
}
