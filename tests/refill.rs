//! Tests refills against an independent calendar that walks from day to day.

use domain::refill::{apply_refill, next_refill_at, period};
use foundation::clock::Timestamp;
use foundation::model::{Credits, Refill, RefillInterval};
use proptest::prelude::*;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// The end of the walks: from 1970 to 2109, past 2100, which is not a leap year.
const DAYS: i64 = 51_000;

/// Returns for each day since 1970 whether a period begins on it.
fn period_starts(interval: RefillInterval) -> Vec<bool> {
    let (mut year, mut month, mut day) = (1970, 1, 1);
    let mut begins = Vec::new();
    for _ in 0..DAYS {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let last = match month {
            2 if is_leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        begins.push(match interval {
            RefillInterval::Daily => true,
            RefillInterval::Monthly { day: due } => day == due || (day == last && due > last),
        });
        day += 1;
        if day > last {
            (day, month) = (1, month + 1);
        }
        if month > 12 {
            (month, year) = (1, year + 1);
        }
    }
    begins
}

/// Whether a period begins on one of the days after `from`, up to `to`.
fn period_starts_between(begins: &[bool], from: i64, to: i64) -> bool {
    (from + 1..=to).any(|day| begins[usize::try_from(day).unwrap()])
}

fn interval() -> impl Strategy<Value = RefillInterval> {
    prop_oneof![
        1 => Just(RefillInterval::Daily),
        4 => (1..=31u8).prop_map(|day| RefillInterval::Monthly { day }),
    ]
}

/// A moment within the middle hundred years: at any time of its day, often at its start or end.
fn moment() -> impl Strategy<Value = i64> {
    let time = prop_oneof![Just(0), Just(1), Just(DAY_MS - 1), 0..DAY_MS];
    (5_000..DAYS - 9_000, time).prop_map(|(day, time)| day * DAY_MS + time)
}

/// The changes of a clock from one operation to the next, in days: forward, far forward, and back.
fn steps() -> impl Strategy<Value = Vec<(i64, i64)>> {
    let days = prop_oneof![
        3 => Just(0i64),
        6 => Just(1i64),
        4 => 2..40i64,
        1 => 40..900i64,
        2 => -60..0i64,
    ];
    let ms = prop_oneof![Just(0), Just(1), Just(-1), 0..DAY_MS];
    proptest::collection::vec((days, ms), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn balance_is_refilled_once_when_a_period_begins(
        interval in interval(), start in moment(), steps in steps()
    ) {
        let begins = period_starts(interval);
        let refill = Refill { interval, amount: 1000 };
        let refilled_for = period(&refill, Timestamp(start));
        let mut credits =
            Credits { balance: 1, last_lease_number: 1, refill: Some(refill), refilled_period: refilled_for };
        // The latest day on which an operation took place.
        let (mut now, mut latest) = (start, start / DAY_MS);
        for (days, ms) in steps {
            now = (now + days * DAY_MS + ms).clamp(0, DAYS * DAY_MS - 1);
            let today = now / DAY_MS;
            let due = period_starts_between(&begins, latest, today);
            latest = latest.max(today);

            let after = apply_refill(credits, Timestamp(now));

            prop_assert_eq!(after.balance, if due { 1000 } else { 1 }, "at {}", now);
            prop_assert_eq!(apply_refill(after, Timestamp(now)), after);
            credits = Credits { balance: 1, ..after };
        }
    }

    #[test]
    fn next_refill_is_the_first_period_start_after_now(interval in interval(), now in moment()) {
        let begins = period_starts(interval);
        let refill = Refill { interval, amount: 1 };
        let number = |ms| period(&refill, Timestamp(ms));

        let Timestamp(then) = next_refill_at(&refill, Timestamp(now));

        let day = (now / DAY_MS + 1..DAYS).find(|day| begins[usize::try_from(*day).unwrap()]);
        prop_assert_eq!(then, day.unwrap() * DAY_MS);
        prop_assert_eq!(number(then - 1), number(now));
        prop_assert_eq!(number(then), number(now) + 1);
    }
}
