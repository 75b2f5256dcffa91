//! Whether clocks agree: expiry goes by this machine's, refills by Postgres's, windows by Redis's.

use foundation::clock::Clock;
use foundation::error::Result;
use store::Store;

use super::Finding;

/// From which difference on somebody should know, and from which on it is wrong.
const WARNING_MS: i64 = 1_000;
const PROBLEM_MS: i64 = 10_000;

/// How far the clock of Postgres is from this machine's.
pub async fn postgres(store: &Store, clock: &Clock) -> Result<Finding> {
    let mut reader = store.read().await?;
    // The first answer comes with the connection, which takes its time.
    reader.now().await?;
    let asked = clock.now();
    let now = reader.now().await?;
    Ok(compared("Postgres", now.0 - i64::midpoint(asked.0, clock.now().0)))
}

/// What is said of a clock that is so far ahead of this machine's.
pub fn compared(whose: &str, ahead_ms: i64) -> Finding {
    let (far, way) = (ahead_ms.unsigned_abs(), if ahead_ms < 0 { "behind" } else { "ahead of" });
    let found = format!("the clock of {whose} is {far} ms {way} this machine's");
    let todo = "set both by NTP: expiry goes by this machine's clock, refills by Postgres's, windows by Redis's";
    match i64::try_from(far).unwrap_or(i64::MAX) {
        ..WARNING_MS => Finding::ok("clock", found),
        WARNING_MS..PROBLEM_MS => Finding::warning("clock", found, todo),
        PROBLEM_MS.. => Finding::problem("clock", found, todo),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn a_second_apart_is_a_warning_and_ten_are_a_problem_either_way() {
        let states = |all: [i64; 4]| all.map(|ms| compared("Redis", ms).state);

        let due = [Severity::Ok, Severity::Warning, Severity::Warning, Severity::Problem];
        assert_eq!(states([999, 1_000, 9_999, 10_000]), due);
        assert_eq!(states([-999, -1_000, -9_999, -10_000]), due);
    }
}
