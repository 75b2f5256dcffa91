//! Refills against a calendar of our own, which walks from day to day.

use foundation::clock::Timestamp;
use foundation::model::{Credits, Refill, RefillInterval};
use keyward::domain::refill::{apply_refill, next_refill_at, period};
use proptest::prelude::*;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// As far as the walks go: 1970 to 2109, past 2100, which is no leap year.
const DAYS: i64 = 51_000;

/// For each day since 1970 whether a period begins on it.
fn begins(interval: RefillInterval) -> Vec<bool> {
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

/// Whether one of the days after `from`, up to `to`, begins a period.
fn begins_between(begins: &[bool], from: i64, to: i64) -> bool {
    (from + 1..=to).any(|day| begins[usize::try_from(day).unwrap()])
}

fn interval() -> impl Strategy<Value = RefillInterval> {
    prop_oneof![
        1 => Just(RefillInterval::Daily),
        4 => (1..=31u8).prop_map(|day| RefillInterval::Monthly { day }),
    ]
}

/// A moment of the middle hundred years: of any time of its day, often of its first or its last.
fn moment() -> impl Strategy<Value = i64> {
    let time = prop_oneof![Just(0), Just(1), Just(DAY_MS - 1), 0..DAY_MS];
    (5_000..DAYS - 9_000, time).prop_map(|(day, time)| day * DAY_MS + time)
}

/// How a clock moves from one act to the next, in days: on, far on, and back.
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
    fn a_period_that_is_entered_refills_once_and_nothing_else_does(
        interval in interval(), start in moment(), steps in steps()
    ) {
        let begins = begins(interval);
        let refill = Refill { interval, amount: 1000 };
        let refilled_for = period(&refill, Timestamp(start));
        let mut credits =
            Credits { balance: 1, last_lease_number: 1, refill: Some(refill), refilled_period: refilled_for };
        // The walk: the latest day on which anything was done.
        let (mut now, mut latest) = (start, start / DAY_MS);
        for (days, ms) in steps {
            now = (now + days * DAY_MS + ms).clamp(0, DAYS * DAY_MS - 1);
            let today = now / DAY_MS;
            let due = begins_between(&begins, latest, today);
            latest = latest.max(today);

            let after = apply_refill(credits, Timestamp(now));

            prop_assert_eq!(after.balance, if due { 1000 } else { 1 }, "at {}", now);
            prop_assert_eq!(apply_refill(after, Timestamp(now)), after);
            credits = Credits { balance: 1, ..after };
        }
    }

    #[test]
    fn the_next_period_is_the_first_that_begins_after_now(interval in interval(), now in moment()) {
        let begins = begins(interval);
        let refill = Refill { interval, amount: 1 };
        let number = |ms| period(&refill, Timestamp(ms));

        let Timestamp(then) = next_refill_at(&refill, Timestamp(now));

        let day = (now / DAY_MS + 1..DAYS).find(|day| begins[usize::try_from(*day).unwrap()]);
        prop_assert_eq!(then, day.unwrap() * DAY_MS);
        prop_assert_eq!(number(then - 1), number(now));
        prop_assert_eq!(number(then), number(now) + 1);
    }
}
