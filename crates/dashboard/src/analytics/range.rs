//! The time range of a chart, its unit, and the period that it is compared with.

use foundation::clock::{DAY_MS, HOUR_MS, Timestamp};
use foundation::model::RollupUnit;

use super::super::form::Form;
use super::date_fields::{NO_DATES, extend, format_fields, parse_period};

/// The time ranges up to now: form value, label, length in milliseconds, unit.
const RANGES: [(&str, &str, i64, RollupUnit); 6] = [
    ("hour", "Last hour", HOUR_MS, RollupUnit::Minute),
    ("day", "Last 24 hours", DAY_MS, RollupUnit::Hour),
    ("week", "Last 7 days", 7 * DAY_MS, RollupUnit::Hour),
    ("month", "Last 30 days", 30 * DAY_MS, RollupUnit::Day),
    ("quarter", "Last 90 days", 90 * DAY_MS, RollupUnit::Day),
    ("year", "Last 12 months", 365 * DAY_MS, RollupUnit::Month),
];
/// The calendar months: form value, label.
const MONTHS: [(&str, &str); 2] = [(THIS_MONTH, "This month"), (LAST_MONTH, "Last month")];

pub const THIS_MONTH: &str = "this-month";
const LAST_MONTH: &str = "last-month";
/// The form value of a range between two dates.
const CUSTOM: &str = "custom";

/// A span of time in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub from: Timestamp,
    /// The exclusive end.
    pub until: Timestamp,
}

impl Period {
    pub fn length_ms(self) -> i64 {
        self.until.0 - self.from.0
    }

    fn has_whole_months(self) -> bool {
        is_month_start(self.from) && is_month_start(self.until)
    }

    /// Returns the period of the same length that ends where this one begins. Before whole months, it has as many
    /// whole months.
    fn previous(self) -> Self {
        let until = self.from;
        let mut from = self.from.plus_ms(-self.length_ms());
        if self.has_whole_months() {
            from = until;
            let mut month = self.from;
            while month < self.until {
                month = RollupUnit::Month.start_of_next(month);
                from = start_of_month_before(from);
            }
        }
        Self { from, until }
    }

    /// Formats whole days by their first and last date, and other periods by their bounds to the minute.
    pub fn format(self) -> String {
        let has_whole_days = is_day_start(self.from) && is_day_start(self.until);
        let (format, last) = match has_whole_days {
            true => ("%Y-%m-%d", self.until.plus_ms(-DAY_MS)),
            false => ("%Y-%m-%d %H:%M", self.until),
        };
        let (from, last) = (format_time(self.from, format), format_time(last, format));
        if from == last { from } else { format!("{from} to {last}") }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeRange {
    pub period: Period,
    /// The period to compare with.
    pub previous: Period,
    /// The unit of the bars of a chart.
    pub unit: RollupUnit,
    /// The first day or the start, as the form shows it.
    pub from_text: String,
    /// The last day or the end, as the form shows it.
    pub until_text: String,
    selected: &'static str,
}

impl TimeRange {
    /// Creates a range that ends now, or a calendar month. An unknown name means the last 24 hours.
    pub fn named(name: &str, now: Timestamp) -> Self {
        if let Some((selected, _)) = MONTHS.iter().find(|(known, _)| *known == name) {
            return Self::calendar_month(selected, now);
        }
        let known = RANGES.iter().find(|(known, ..)| *known == name).unwrap_or(&RANGES[1]);
        let (selected, _, length_ms, unit) = *known;
        // Includes the current unit.
        let until = unit.start_of_next(now);
        let period = Period { from: unit.start_of(until.plus_ms(-length_ms)), until };
        Self::new(period, period.previous(), unit, selected)
    }

    /// Creates this month up to today, which is compared with as many days of the month before, or the last month,
    /// which is compared with the whole month before.
    fn calendar_month(selected: &'static str, now: Timestamp) -> Self {
        let first = RollupUnit::Month.start_of(now);
        let before = start_of_month_before(first);
        if selected == LAST_MONTH {
            let period = Period { from: before, until: first };
            return Self::new(period, period.previous(), RollupUnit::Day, selected);
        }
        let period = Period { from: first, until: RollupUnit::Day.start_of_next(now) };
        let until = before.plus_ms(period.length_ms()).min(first);
        Self::new(period, Period { from: before, until }, RollupUnit::Day, selected)
    }

    fn new(period: Period, previous: Period, unit: RollupUnit, selected: &'static str) -> Self {
        let (from_text, until_text) = (String::new(), String::new());
        Self { period, previous, unit, from_text, until_text, selected }
    }

    /// Reads the range from a form. Dates and times apply to the range "Custom", and if no range is named. The second value is
    /// the error of invalid dates; the range then is the last 24 hours.
    pub fn from_form(form: &Form, now: Timestamp) -> (Self, Option<String>) {
        let name = form.text("range");
        let (from_text, until_text) = (form.text("from").trim(), form.text("until").trim());
        let has_dates = !(from_text.is_empty() && until_text.is_empty());
        if name != CUSTOM && !(name.is_empty() && has_dates) {
            return (Self::named(name, now), None);
        }
        let parsed = match has_dates {
            true => parse_period(from_text, until_text, now),
            false => Err(NO_DATES.into()),
        };
        let (range, fault) = match parsed {
            Ok((period, unit)) => (Self::new(period, period.previous(), unit, CUSTOM), None),
            Err(fault) => (Self { selected: CUSTOM, ..Self::named("", now) }, Some(fault)),
        };
        let shown = fault.is_none().then_some(range.period);
        let (from_text, until_text) = format_fields(from_text, until_text, shown);
        (Self { from_text, until_text, ..range }, fault)
    }

    /// Shows whole hours instead of minutes if the minutes are not retained since the start of the range.
    #[must_use]
    pub fn with_minutes_since(self, retained_since: Timestamp) -> Self {
        if self.unit != RollupUnit::Minute || self.period.from >= retained_since {
            return self;
        }
        let period = extend(self.period, RollupUnit::Hour);
        let (from_text, until_text) =
            format_fields(&self.from_text, &self.until_text, Some(period));
        let hours = Self::new(period, period.previous(), RollupUnit::Hour, self.selected);
        Self { from_text, until_text, ..hours }
    }

    /// Returns the unit of the rollups to add up: as coarse as the bars and the bounds of the range allow.
    pub fn rollup_unit(&self) -> RollupUnit {
        match self.unit {
            RollupUnit::Month if !self.period.has_whole_months() => RollupUnit::Day,
            unit => unit,
        }
    }

    /// Returns whether a moment is within the range.
    pub fn includes(&self, at: Timestamp) -> bool {
        (self.period.from..self.period.until).contains(&at)
    }

    /// Returns whether the range is between two dates.
    pub fn is_custom(&self) -> bool {
        self.selected == CUSTOM
    }

    /// Returns the options: form value, label, whether it is selected.
    pub fn options(&self) -> Vec<(&'static str, &'static str, bool)> {
        let ranges = RANGES.iter().map(|(value, label, ..)| (*value, *label));
        let options = MONTHS.into_iter().chain(ranges);
        options.map(|(value, label)| (value, label, value == self.selected)).collect()
    }

    /// Returns the options, and that of a range between two dates.
    pub fn options_with_custom(&self) -> Vec<(&'static str, &'static str, bool)> {
        let mut options = self.options();
        options.push((CUSTOM, "Custom", self.is_custom()));
        options
    }

    /// Returns the label of a unit, by its start.
    pub fn format_label(&self, at: Timestamp) -> String {
        let format = match self.unit {
            RollupUnit::Minute => "%H:%M",
            RollupUnit::Hour if self.period.length_ms() <= DAY_MS => "%H:%M",
            RollupUnit::Hour => "%b %-d %H:%M",
            RollupUnit::Day => "%b %-d",
            RollupUnit::Month => "%b %Y",
        };
        format_time(at, format)
    }
}

/// Returns a page of events with the time range of a query, so that a link to it keeps the range. `of` selects the kind of
/// events; empty selects verifications.
pub fn with_range(path: &str, of: &str, query: &Form) -> String {
    let range = ["range", "from", "until"].map(|name| (name, query.text(name).trim()));
    let pairs = [("of", of)].into_iter().chain(range).filter(|(_, value)| !value.is_empty());
    let mut fields = form_urlencoded::Serializer::new(String::new());
    fields.extend_pairs(pairs);
    let fields = fields.finish();
    if fields.is_empty() { path.to_owned() } else { format!("{path}?{fields}") }
}

/// Formats midnight as a date, and other times to the minute.
pub fn format_moment(at: Timestamp) -> String {
    format_time(at, if is_day_start(at) { "%Y-%m-%d" } else { "%Y-%m-%d %H:%M" })
}

fn start_of_month_before(first: Timestamp) -> Timestamp {
    RollupUnit::Month.start_of(first.plus_ms(-1))
}

fn is_month_start(at: Timestamp) -> bool {
    RollupUnit::Month.start_of(at) == at
}

pub fn is_day_start(at: Timestamp) -> bool {
    RollupUnit::Day.start_of(at) == at
}

fn format_time(at: Timestamp, format: &str) -> String {
    let stamp = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
    stamp.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::date_fields::parse_day;
    use super::*;

    /// 2026-03-31 10:20 UTC.
    const NOW: Timestamp = Timestamp(1_774_952_400_000);

    fn read(query: &str) -> (TimeRange, Option<String>) {
        TimeRange::from_form(&Form::parse(query.as_bytes()), NOW)
    }

    /// Returns the period of a range at the start of a date, and the one that it is compared with.
    fn periods(query: &str, today: &str) -> [String; 2] {
        let now = parse_day("Today", today).expect("a date");
        let (range, fault) = TimeRange::from_form(&Form::parse(query.as_bytes()), now);
        assert_eq!(fault, None, "{query}");
        [range.period.format(), range.previous.format()]
    }

    #[test]
    fn link_keeps_the_range_of_a_query() {
        let link = |of, query: &str| with_range("/logs", of, &Form::parse(query.as_bytes()));

        assert_eq!(link("", "outcome=VALID&live=9"), "/logs");
        assert_eq!(link("limits", "range=&from="), "/logs?of=limits");
        assert_eq!(link("", "range=week&only=api_1"), "/logs?range=week");
        let custom = "range=custom&from=2026-03-01&until=2026-03-02T10:20";
        let expected = "/logs?of=limits&range=custom&from=2026-03-01&until=2026-03-02T10%3A20";
        assert_eq!(link("limits", custom), expected);
    }

    #[test]
    fn named_range_includes_current_unit() {
        let (range, fault) = read("range=day");

        assert_eq!(fault, None);
        assert_eq!(range.format_label(range.period.from), "11:00");
        assert_eq!(range.format_label(range.period.until.plus_ms(-1)), "10:59");
        assert_eq!(range.period.format(), "2026-03-30 11:00 to 2026-03-31 11:00");
        assert_eq!(range.previous.format(), "2026-03-29 11:00 to 2026-03-30 11:00");
        assert_eq!(read("range=nonsense").0, range);
        assert_eq!(read("range=day&from=2026-03-01").0, range, "the select decides");
        assert_eq!(read("range=hour").0.unit, RollupUnit::Minute);
    }

    #[test]
    fn this_month_is_compared_with_as_many_days_of_the_month_before() {
        let of = |today| periods("range=this-month", today);

        assert_eq!(of("2026-03-01"), ["2026-03-01", "2026-02-01"]);
        assert_eq!(of("2026-03-10"), ["2026-03-01 to 2026-03-10", "2026-02-01 to 2026-02-10"]);
        assert_eq!(of("2026-03-28"), ["2026-03-01 to 2026-03-28", "2026-02-01 to 2026-02-28"]);
        assert_eq!(of("2026-03-29"), ["2026-03-01 to 2026-03-29", "2026-02-01 to 2026-02-28"]);
        assert_eq!(of("2026-02-28"), ["2026-02-01 to 2026-02-28", "2026-01-01 to 2026-01-28"]);
        assert_eq!(of("2026-01-05"), ["2026-01-01 to 2026-01-05", "2025-12-01 to 2025-12-05"]);
    }

    #[test]
    fn whole_months_are_compared_with_as_many_whole_months() {
        for (query, today, expected) in [
            (
                "range=last-month",
                "2026-03-10",
                ["2026-02-01 to 2026-02-28", "2026-01-01 to 2026-01-31"],
            ),
            (
                "range=last-month",
                "2024-03-31",
                ["2024-02-01 to 2024-02-29", "2024-01-01 to 2024-01-31"],
            ),
            (
                "range=last-month",
                "2026-01-01",
                ["2025-12-01 to 2025-12-31", "2025-11-01 to 2025-11-30"],
            ),
            ("range=year", "2024-02-29", ["2023-03-01 to 2024-02-29", "2022-03-01 to 2023-02-28"]),
            (
                "from=2026-02-01&until=2026-03-31",
                "2026-04-01",
                ["2026-02-01 to 2026-03-31", "2025-12-01 to 2026-01-31"],
            ),
            (
                "from=2026-02-02&until=2026-03-31",
                "2026-04-01",
                ["2026-02-02 to 2026-03-31", "2025-12-06 to 2026-02-01"],
            ),
        ] {
            assert_eq!(periods(query, today), expected, "{query} on {today}");
        }
    }

    #[test]
    fn rollups_are_as_coarse_as_bars_and_bounds_allow() {
        for (query, unit) in [
            ("range=hour", RollupUnit::Minute),
            ("range=week", RollupUnit::Hour),
            ("range=this-month", RollupUnit::Day),
            ("range=year", RollupUnit::Month),
            ("from=2025-12-01&until=2026-03-31", RollupUnit::Month),
            ("from=2025-12-02&until=2026-03-31", RollupUnit::Day),
            ("from=2025-12-01&until=2026-03-30", RollupUnit::Day),
        ] {
            assert_eq!(read(query).0.rollup_unit(), unit, "{query}");
        }
    }

    #[test]
    fn date_range_includes_whole_days_and_derives_unit_from_length() {
        let length = |query: &str| {
            let (range, fault) = read(query);
            assert_eq!(fault, None, "{query}");
            (range.period.length_ms() / DAY_MS, range.unit)
        };

        assert_eq!(length("from=2026-03-31&until=2026-03-31"), (1, RollupUnit::Hour));
        assert_eq!(length("range=custom&from=2026-03-31"), (1, RollupUnit::Hour));
        assert_eq!(length("from=2026-03-24&until=2026-03-31"), (8, RollupUnit::Hour));
        assert_eq!(length("from=2026-03-23"), (9, RollupUnit::Day));
        assert_eq!(length("until=2026-02-28"), (30, RollupUnit::Day));
        assert_eq!(length("from=2025-02-25&until=2026-03-31"), (400, RollupUnit::Month));
    }

    #[test]
    fn range_falls_back_to_last_day_when_dates_are_invalid() {
        for (query, fault) in [
            ("from=yesterday", "Start date must be a date such as 2026-03-31"),
            ("until=2026-02-30", "End date must be a date such as 2026-03-31"),
            ("from=2026-03-31&until=2026-03-30", "Start date must not be after end date"),
            ("from=2025-02-24&until=2026-03-31", "Select at most 400 days"),
            ("range=custom", "Custom needs a start date or an end date"),
            ("from=2026-03-31T", "Start date must be a time such as 2026-03-31T10:20"),
            ("until=2026-03-31T24:00", "End date must be a time such as 2026-03-31T10:20"),
            ("until=2026-03-31T10:20Z", "End date must be a time such as 2026-03-31T10:20"),
            ("from=2026-03-31T10:20&until=2026-03-31T10:20", "Start date must be before end date"),
            ("from=2025-02-24T23:59&until=2026-03-31", "Select at most 400 days"),
        ] {
            let (range, found) = read(query);
            assert_eq!(found.as_deref(), Some(fault));
            assert_eq!(range.unit, RollupUnit::Hour);
            assert_eq!(range.options_with_custom().last(), Some(&("custom", "Custom", true)));
        }
    }
    #[test]
    fn range_shows_hours_if_minutes_are_not_retained() {
        let (range, _) = read("from=2026-03-31T07:20&until=2026-03-31T08:10");

        assert_eq!(range.clone().with_minutes_since(range.period.from), range);
        let hours = range.clone().with_minutes_since(range.period.from.plus_ms(1));
        assert_eq!(hours.unit, RollupUnit::Hour);
        assert_eq!(
            [hours.from_text.as_str(), &hours.until_text],
            ["2026-03-31T07:00", "2026-03-31T09:00"]
        );
        let (day, _) = read("from=2026-03-31");
        assert_eq!(day.clone().with_minutes_since(NOW), day);
    }
}
