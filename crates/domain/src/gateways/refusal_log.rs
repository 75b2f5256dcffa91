//! Logs the gateways that were refused. Whoever reaches the server can cause a refusal, so of many only some are logged.

use std::net::IpAddr;
use std::time::Duration;

use foundation::clock::Monotonic;
use parking_lot::Mutex;

use super::validate::NAME_MAX;

/// The time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Decides which refusals are logged.
#[derive(Debug, Default)]
pub struct RefusalLog(Mutex<RefusalCount>);

#[derive(Debug, Default)]
struct RefusalCount {
    /// When the next one may be logged.
    next_at: Monotonic,
    /// How many were not logged since the last one that was.
    omitted: u64,
}

impl RefusalLog {
    /// Logs that a gateway was refused, unless another one was logged within the last second.
    pub fn record(&self, policy: &str, peer: Option<IpAddr>, reason: &'static str) {
        let Some(omitted) = self.0.lock().count(Monotonic::now()) else { return };
        // It may be any text, as long as a path.
        let policy: String = policy.chars().take(NAME_MAX).collect();
        tracing::warn!(policy, peer = ?peer, omitted, "refused a gateway: {reason}");
    }
}

impl RefusalCount {
    /// Counts a refusal. Returns how many were omitted before it, if it is to be logged.
    fn count(&mut self, now: Monotonic) -> Option<u64> {
        if now < self.next_at {
            self.omitted = self.omitted.saturating_add(1);
            return None;
        }
        self.next_at = now + INTERVAL;
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_refusal_per_second_is_logged_with_the_number_of_omitted_ones() {
        let mut refusals = RefusalCount::default();

        let logged: Vec<_> = [0, 0, 1, 999, 1_000, 1_500, 2_000, 2_001, 60_000]
            .map(|ms| refusals.count(Monotonic::from_ms(ms)))
            .into();

        let expected = [Some(0), None, None, None, Some(3), None, Some(1), None, Some(1)];
        assert_eq!(logged, expected);
    }
}
