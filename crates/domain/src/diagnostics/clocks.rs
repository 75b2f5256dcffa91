//! Checks of clock skew. Expiry uses the clock of this machine, refills that of Postgres, windows that of Redis.

use foundation::clock::Clock;
use foundation::error::Result;
use store::Store;

use super::Finding;

/// The clock differences from which a finding is a warning and a problem.
const SKEW_WARNING_MS: i64 = 1_000;
const SKEW_PROBLEM_MS: i64 = 10_000;

/// Compares the clock of Postgres with that of this machine.
pub async fn check_postgres_clock(store: &Store, clock: &Clock) -> Result<Finding> {
    let mut reader = store.read().await?;
    // The first query also waits for the connection, so it is not measured.
    reader.load_database_time().await?;
    let started_at = clock.now();
    let now = reader.load_database_time().await?;
    Ok(compare_clock("Postgres", now.0 - i64::midpoint(started_at.0, clock.now().0)))
}

/// Returns the finding for a server whose clock is `ahead_ms` ahead of that of this machine.
pub fn compare_clock(server: &str, ahead_ms: i64) -> Finding {
    let skew_ms = ahead_ms.unsigned_abs();
    let direction = if ahead_ms < 0 { "behind" } else { "ahead of" };
    let found =
        format!("the clock of {server} is {skew_ms} ms {direction} the clock of this machine");
    let todo = "synchronize both with NTP: expiry uses the clock of this machine, refills that of Postgres, windows \
        that of Redis";
    match i64::try_from(skew_ms).unwrap_or(i64::MAX) {
        ..SKEW_WARNING_MS => Finding::ok("clock", found),
        SKEW_WARNING_MS..SKEW_PROBLEM_MS => Finding::warning("clock", found, todo),
        SKEW_PROBLEM_MS.. => Finding::problem("clock", found, todo),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn clock_skew_is_a_warning_from_one_second_and_a_problem_from_ten() {
        let states = |all: [i64; 4]| all.map(|ms| compare_clock("Redis", ms).state);

        let expected = [Severity::Ok, Severity::Warning, Severity::Warning, Severity::Problem];
        assert_eq!(states([999, 1_000, 9_999, 10_000]), expected);
        assert_eq!(states([-999, -1_000, -9_999, -10_000]), expected);
    }
}
