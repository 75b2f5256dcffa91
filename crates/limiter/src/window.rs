//! The sliding window, as a pure function: what `lua/consume.lua` does in Redis, said in Rust.
//!
//! Time is cut into windows of the limit's duration, counted from the unix epoch. What counts is all
//! that was taken in this window, and of the window before the share that a window ending now would
//! still cover.

use super::{EXACT_MAX, Window};

/// One counter: the number of its latest window, what was taken in it and in the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowCounter {
    pub number: i64,
    pub count: i64,
    pub before: i64,
}

impl WindowCounter {
    /// The counter as it stands at `now_ms`. A clock that stepped back stands still at the start of
    /// the latest window.
    pub fn at(stored: Option<Self>, now_ms: i64, duration_ms: i64) -> Self {
        let number = now_ms / duration_ms;
        match stored {
            Some(cell) if cell.number >= number => cell,
            Some(cell) if cell.number == number - 1 => {
                Self { number, count: 0, before: cell.count }
            }
            _ => Self { number, count: 0, before: 0 },
        }
    }

    /// What counts against the limit at `now_ms`.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the script computes in doubles, and both must agree to the last unit"
    )]
    pub fn effective(&self, now_ms: i64, duration_ms: i64) -> i64 {
        let elapsed = (now_ms - self.number * duration_ms).max(0);
        let left = (duration_ms - elapsed) as f64;
        self.count + (self.before as f64 * left / duration_ms as f64).floor() as i64
    }

    /// When the counter says nothing any more.
    pub fn expires_ms(&self, duration_ms: i64) -> i64 {
        (self.number + 2).saturating_mul(duration_ms)
    }
}

/// Whether a window with this much in it admits the cost. A limit of 0 admits nothing, not even a
/// look.
pub fn is_within_limit(window: &Window, effective: i64) -> bool {
    window.limit > 0 && effective + window.cost <= window.limit
}

/// Keeps a number where doubles are exact, which is all that the script can count with.
pub fn clamp_to_exact(number: i64) -> i64 {
    number.clamp(0, EXACT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    #[test]
    fn the_window_before_counts_by_the_share_that_is_still_covered() {
        let cell = WindowCounter { number: 0, count: 10, before: 0 };

        let counts: Vec<_> = [0, 15_000, 30_000, 59_999]
            .into_iter()
            .map(|into| {
                WindowCounter::at(Some(cell), MINUTE + into, MINUTE)
                    .effective(MINUTE + into, MINUTE)
            })
            .collect();

        assert_eq!(counts, [10, 7, 5, 0]);
    }

    #[test]
    fn two_windows_later_nothing_is_left() {
        let cell = WindowCounter { number: 0, count: 10, before: 10 };

        assert_eq!(
            WindowCounter::at(Some(cell), 2 * MINUTE, MINUTE).effective(2 * MINUTE, MINUTE),
            0
        );
    }

    #[test]
    fn a_clock_that_steps_back_frees_nothing() {
        let cell = WindowCounter { number: 5, count: 10, before: 4 };

        let back = WindowCounter::at(Some(cell), MINUTE, MINUTE);

        assert_eq!(back.effective(MINUTE, MINUTE), 14);
    }

    #[test]
    fn a_limit_of_0_admits_not_even_a_look() {
        let window = Window::new("", 0, MINUTE, 0);

        assert!(!is_within_limit(&window, 0));
    }
}
