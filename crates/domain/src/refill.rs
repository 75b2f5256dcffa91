//! Refills of credits, as a function of time: no job has to run, and downtime loses no refill.

use foundation::clock::{DAY_MS, Timestamp};
use foundation::model::{Credits, Key, Refill, RefillInterval};
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use store::RefillPeriods;

/// Returns the number of the refill period that contains a time, in UTC. Periods are numbered in order; the first
/// operation in a new period refills the balance.
pub fn period(refill: &Refill, now: Timestamp) -> i64 {
    let Some(date) = to_utc_date(now) else { return 0 };
    match refill.interval {
        RefillInterval::Daily => now.0.div_euclid(DAY_MS),
        RefillInterval::Monthly { day } => {
            let month = i64::from(date.year()) * 12 + i64::from(date.month()) - 1;
            if date >= due_date(date, day) { month } else { month - 1 }
        }
    }
}

/// Returns the numbers of the periods of all refill settings at a time; see [`period`].
pub fn periods(now: Timestamp) -> RefillPeriods {
    let Some(date) = to_utc_date(now) else { return RefillPeriods::default() };
    RefillPeriods {
        day: now.0.div_euclid(DAY_MS),
        month: i64::from(date.year()) * 12 + i64::from(date.month()) - 1,
        // The last day of a month is also due for all later days.
        day_of_month: if date == date.last_of_month() { 31 } else { i64::from(date.day()) },
    }
}

/// Returns when the next period starts, in Unix milliseconds; the maximum timestamp if the calendar of 9999 years
/// ends before.
pub fn next_refill_at(refill: &Refill, now: Timestamp) -> Timestamp {
    let begins = |date: Date| match refill.interval {
        RefillInterval::Daily => date.tomorrow().ok(),
        RefillInterval::Monthly { day } => match due_date(date, day) {
            this_month if date < this_month => Some(this_month),
            _ => Some(due_date(date.last_of_month().tomorrow().ok()?, day)),
        },
    };
    to_utc_date(now).and_then(begins).and_then(to_midnight).unwrap_or(Timestamp(i64::MAX))
}

/// Returns when the period that contains a time has started.
fn period_start(refill: &Refill, now: Timestamp) -> Option<Timestamp> {
    let date = to_utc_date(now)?;
    to_midnight(match refill.interval {
        RefillInterval::Daily => date,
        RefillInterval::Monthly { day } => match due_date(date, day) {
            this_month if this_month <= date => this_month,
            _ => due_date(date.first_of_month().yesterday().ok()?, day),
        },
    })
}

/// Returns when a key was last refilled, or when it was created if it has not been. `None` if it is unknown whether
/// the refill was configured when the period started.
pub fn last_refill_at(key: &Key, now: Timestamp) -> Option<Timestamp> {
    let credits = key.credits?;
    let refill = credits.refill?;
    let began = period_start(&refill, now)?;
    let is_due = credits.refilled_period < period(&refill, now);
    // Only an update of the key sets a refill, and every setting counts for the period in which it is made.
    let may_be_new = !is_due && key.updated_at.is_some_and(|at| at >= began);
    (!may_be_new).then(|| began.max(key.created_at))
}

/// Returns the day on which a monthly refill is due in the month of a date.
fn due_date(date: Date, day: u8) -> Date {
    let day = i8::try_from(day).unwrap_or(i8::MAX).clamp(1, date.days_in_month());
    date.with().day(day).build().unwrap_or(date)
}

/// Returns the current period of these credits; 0 without a refill.
pub fn current_period(credits: &Credits, now: Timestamp) -> i64 {
    // A clock behind the one that refilled last must not refill again.
    credits.refill.map_or(0, |refill| period(&refill, now)).max(credits.refilled_period)
}

/// Returns the credits at `now`: refilled if a period has started since.
pub fn apply_refill(credits: Credits, now: Timestamp) -> Credits {
    let period = current_period(&credits, now);
    match credits.refill {
        Some(refill) if period > credits.refilled_period => {
            Credits { balance: refill.amount, refilled_period: period, ..credits }
        }
        Some(_) | None => credits,
    }
}

fn to_utc_date(now: Timestamp) -> Option<Date> {
    let now = jiff::Timestamp::from_millisecond(now.0).ok()?;
    Some(TimeZone::UTC.to_datetime(now).date())
}

fn to_midnight(date: Date) -> Option<Timestamp> {
    let midnight = TimeZone::UTC.to_timestamp(date.to_datetime(Time::midnight())).ok()?;
    Some(Timestamp(midnight.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().expect("a time").as_millisecond())
    }

    fn credits(interval: RefillInterval, created: &str) -> Credits {
        let refill = Refill { interval, amount: 100 };
        Credits {
            balance: 1,
            last_lease_number: 1,
            refill: Some(refill),
            refilled_period: period(&refill, at(created)),
        }
    }

    #[test]
    fn refill_is_applied_at_midnight_utc_when_daily() {
        let key = credits(RefillInterval::Daily, "2026-03-01T10:00:00Z");

        assert_eq!(apply_refill(key, at("2026-03-01T23:59:59.999Z")).balance, 1);
        assert_eq!(apply_refill(key, at("2026-03-02T00:00:00Z")).balance, 100);
    }

    #[test]
    fn refill_is_applied_on_the_last_day_when_the_month_is_shorter() {
        let key = credits(RefillInterval::Monthly { day: 31 }, "2028-01-31T12:00:00Z");

        assert_eq!(apply_refill(key, at("2028-02-28T23:59:59Z")).balance, 1);
        assert_eq!(apply_refill(key, at("2028-02-29T00:00:00Z")).balance, 100);
    }

    #[test]
    fn refill_is_applied_once_when_several_periods_have_passed() {
        let key = credits(RefillInterval::Daily, "2026-03-01T10:00:00Z");

        let later = Credits { balance: 7, ..apply_refill(key, at("2026-09-01T10:00:00Z")) };

        assert_eq!(apply_refill(later, at("2026-09-01T23:00:00Z")).balance, 7);
    }

    #[test]
    fn period_increments_when_next_refill_is_due() {
        let monthly = |day| Refill { interval: RefillInterval::Monthly { day }, amount: 1 };
        let daily = Refill { interval: RefillInterval::Daily, amount: 1 };
        for (refill, now, next_at) in [
            (daily, "2026-03-01T23:59:59.999Z", "2026-03-02T00:00:00Z"),
            (daily, "2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z"),
            (monthly(31), "2028-01-31T00:00:00Z", "2028-02-29T00:00:00Z"),
            (monthly(31), "2026-02-28T12:00:00Z", "2026-03-31T00:00:00Z"),
            (monthly(1), "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z"),
        ] {
            assert_eq!(next_refill_at(&refill, at(now)), at(next_at), "{now}");
            assert_eq!(period(&refill, at(next_at)), period(&refill, at(now)) + 1);
        }
    }

    #[test]
    fn refill_is_not_applied_when_clock_goes_back() {
        let key = credits(RefillInterval::Daily, "2026-03-05T10:00:00Z");

        assert_eq!(apply_refill(key, at("2026-03-04T10:00:00Z")).balance, 1);
    }

    #[test]
    fn next_refill_at_is_midnight_utc_of_the_due_day() {
        let monthly = |day| RefillInterval::Monthly { day };
        for (interval, now, begins) in [
            (RefillInterval::Daily, "2026-12-31T23:59:59.999Z", "2027-01-01T00:00:00Z"),
            (RefillInterval::Daily, "2028-02-28T00:00:00Z", "2028-02-29T00:00:00Z"),
            (monthly(1), "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            (monthly(15), "2026-03-14T23:59:59.999Z", "2026-03-15T00:00:00Z"),
            (monthly(15), "2026-03-15T00:00:00Z", "2026-04-15T00:00:00Z"),
            (monthly(31), "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"),
            (monthly(31), "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"),
            (monthly(30), "2028-01-30T12:00:00Z", "2028-02-29T00:00:00Z"),
        ] {
            let refill = Refill { interval, amount: 1 };
            assert_eq!(next_refill_at(&refill, at(now)), at(begins), "{interval:?} at {now}");
        }
    }

    #[test]
    fn period_start_is_midnight_utc_of_the_due_day() {
        let monthly = |day| RefillInterval::Monthly { day };
        for (interval, now, begun) in [
            (RefillInterval::Daily, "2026-03-01T23:59:59.999Z", "2026-03-01T00:00:00Z"),
            (RefillInterval::Daily, "2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z"),
            (monthly(1), "2027-01-31T12:00:00Z", "2027-01-01T00:00:00Z"),
            (monthly(15), "2027-01-14T23:59:59.999Z", "2026-12-15T00:00:00Z"),
            (monthly(31), "2026-02-27T00:00:00Z", "2026-01-31T00:00:00Z"),
            (monthly(31), "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z"),
            (monthly(31), "2026-03-30T00:00:00Z", "2026-02-28T00:00:00Z"),
        ] {
            let refill = Refill { interval, amount: 1 };
            assert_eq!(period_start(&refill, at(now)), Some(at(begun)), "{interval:?} at {now}");
        }
    }

    #[test]
    fn periods_match_the_period_of_every_refill() {
        for now in ["2026-02-27T12:00:00Z", "2026-02-28T00:00:00Z", "2026-03-30T23:59:59.999Z"] {
            let now = at(now);
            let periods = periods(now);
            let daily = Refill { interval: RefillInterval::Daily, amount: 1 };
            assert_eq!(periods.day, period(&daily, now));
            for day in 1..=31_u8 {
                let monthly = Refill { interval: RefillInterval::Monthly { day }, amount: 1 };
                let waits = i64::from(i64::from(day) > periods.day_of_month);
                assert_eq!(periods.month - waits, period(&monthly, now), "{day} at {now:?}");
            }
        }
    }

    #[test]
    fn next_refill_at_is_the_maximum_when_the_calendar_ends() {
        let refill = Refill { interval: RefillInterval::Daily, amount: 1 };

        assert_eq!(next_refill_at(&refill, Timestamp(i64::MAX)), Timestamp(i64::MAX));
        assert_eq!(next_refill_at(&refill, at("9999-12-30T12:00:00Z")), Timestamp(i64::MAX));
    }
}
