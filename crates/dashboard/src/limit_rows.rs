//! Form rows for the rate limits of a key or an identity. One row can be added or removed at a time.

use domain::bounds::{DURATION_MIN_MS, RATELIMIT_NAME_MAX, RATELIMIT_NAME_MIN, RATELIMITS_MAX};
use domain::keys::NewRatelimit;
use foundation::model::{AllowedChars, Ratelimit};
use serde::{Deserialize, Serialize};

use super::duration_field::{DurationField, nth_value};
use super::field_reader::FieldReader;
use super::form::Form;

/// The window of a new row.
const DEFAULT_WINDOW_MS: i64 = 60_000;

/// The fields of one rate limit, as submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRow {
    pub name: String,
    pub limit: String,
    pub window: DurationField,
    pub is_auto: bool,
}

impl Default for LimitRow {
    fn default() -> Self {
        let (name, limit) = (String::new(), String::new());
        Self { name, limit, window: DurationField::from_ms(DEFAULT_WINDOW_MS), is_auto: true }
    }
}

impl LimitRow {
    /// Returns whether the row has neither name nor limit and is therefore ignored.
    fn is_blank(&self) -> bool {
        self.name.is_empty() && self.limit.is_empty()
    }

    fn read(&self, fields: &mut FieldReader, at: usize) -> NewRatelimit {
        let path = |field: &str| format!("ratelimits[{at}].{field}");
        let lengths = RATELIMIT_NAME_MIN..=RATELIMIT_NAME_MAX;
        let (numbers, durations) = (1..=i64::MAX, DURATION_MIN_MS..=i64::MAX);
        NewRatelimit {
            name: fields.text(&path("name"), &self.name, lengths, AllowedChars::Printable),
            limit: fields.integer(&path("limit"), &self.limit, numbers),
            duration_ms: fields.duration_ms(&path("duration"), &self.window, durations),
            auto_apply: self.is_auto,
            is_async: false,
        }
    }
}

/// The rate limits of a form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LimitRows(Vec<LimitRow>);

impl LimitRows {
    /// Creates rows from stored limits, sorted by name.
    pub fn from_limits(limits: &[Ratelimit]) -> Self {
        let row = |limit: &Ratelimit| LimitRow {
            name: limit.name.clone(),
            limit: limit.limit.to_string(),
            window: DurationField::from_ms(limit.duration_ms),
            is_auto: limit.auto_apply,
        };
        let mut rows: Vec<_> = limits.iter().map(row).collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Self(rows)
    }

    /// Reads the rows of a form. The flag is `true` if the pressed button only adds or removes a row.
    pub fn from_form(form: &Form) -> (Self, bool) {
        let is_auto = |at: usize| form.values("limit-auto").any(|row| row == at.to_string());
        let row = |at: usize| LimitRow {
            name: nth_value(form, "limit-name", at).trim().to_owned(),
            limit: nth_value(form, "limit-limit", at).trim().to_owned(),
            window: DurationField::from_form(form, "limit-duration", at),
            is_auto: is_auto(at),
        };
        let count = form.values("limit-name").count();
        let mut rows = Self((0..count).map(row).collect());
        let (adds, removed) = (!form.text("add").is_empty(), form.text("remove"));
        if let Some(at) = removed.parse().ok().filter(|at: &usize| *at < rows.0.len()) {
            rows.0.remove(at);
        }
        if adds && rows.has_capacity() {
            rows.0.push(LimitRow::default());
        }
        (rows, adds || !removed.is_empty())
    }

    /// Adds an empty row if there is none.
    pub fn with_blank_row(mut self) -> Self {
        if self.0.is_empty() {
            self.0.push(LimitRow::default());
        }
        self
    }

    pub fn iter(&self) -> std::slice::Iter<'_, LimitRow> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has_capacity(&self) -> bool {
        self.0.len() < RATELIMITS_MAX
    }

    /// Reads the limits of the rows that are not blank.
    pub fn read(&self, fields: &mut FieldReader) -> Vec<NewRatelimit> {
        let filled: Vec<_> = self.0.iter().enumerate().filter(|(_, row)| !row.is_blank()).collect();
        fields.check_count("ratelimits", filled.len(), RATELIMITS_MAX);
        filled.into_iter().map(|(at, row)| row.read(fields, at)).collect()
    }

    /// Returns whether the rows stand for other limits than these, even if they are invalid.
    pub fn differ_from(&self, other: &Self) -> bool {
        let read = |rows: &Self| rows.read(&mut FieldReader::default());
        read(self) != read(other)
    }
}

#[cfg(test)]
mod tests {
    use foundation::error::Error;

    use super::*;

    fn names(rows: &LimitRows) -> Vec<(&str, bool)> {
        rows.iter().map(|row| (row.name.as_str(), row.is_auto)).collect()
    }

    const TWO: &str = "limit-name=a&limit-limit=1&limit-duration=1&limit-duration-unit=min&\
        limit-name=b&limit-limit=2&limit-duration=2&limit-duration-unit=h&limit-auto=1";

    fn read(more: &str) -> (LimitRows, bool) {
        LimitRows::from_form(&Form::parse(format!("{TWO}{more}").as_bytes()))
    }

    #[test]
    fn limit_rows_keep_other_rows_when_one_is_added_or_removed() {
        let (same, is_step) = read("");
        assert_eq!((names(&same), is_step), (vec![("a", false), ("b", true)], false));
        let (more, is_step) = read("&add=limit");
        assert_eq!((names(&more), is_step), (vec![("a", false), ("b", true), ("", true)], true));
        let (fewer, is_step) = read("&remove=0");
        assert_eq!((names(&fewer), is_step), (vec![("b", true)], true));
        assert_eq!(names(&read("&remove=2").0), names(&same));
    }

    #[test]
    fn limit_rows_read_all_but_blank_rows() {
        let (mut rows, _) = read("&limit-name=&limit-limit=");
        rows.0.iter_mut().for_each(|row| row.name = row.name.repeat(3));

        let mut fields = FieldReader::default();
        let limit = |name: &str, limit: i64, duration_ms: i64, auto_apply: bool| NewRatelimit {
            name: name.to_owned(),
            limit,
            duration_ms,
            auto_apply,
            is_async: false,
        };
        let expected = vec![limit("aaa", 1, 60_000, false), limit("bbb", 2, 7_200_000, true)];
        assert_eq!(rows.read(&mut fields), expected);
        assert!(fields.finish(()).is_ok());
    }

    #[test]
    fn limit_rows_report_every_invalid_field() {
        let (rows, _) = read("&limit-name=ccc&limit-limit=x");

        let mut fields = FieldReader::default();
        rows.read(&mut fields);
        let Err(Error::Invalid(errors)) = fields.finish(()) else { panic!("no errors") };
        let messages: Vec<_> = errors.iter().map(|error| error.message.as_str()).collect();
        assert_eq!(messages.len(), 4, "{messages:?}");
        assert!(messages[0].starts_with("ratelimits[0].name must have 3 to 128 characters"));
        assert!(messages[2].starts_with("ratelimits[2].limit must be a whole number of at"));
        assert!(messages[3].starts_with("ratelimits[2].duration must be at least 1 second"));
    }

    #[test]
    fn limit_rows_differ_when_they_stand_for_other_limits() {
        let (rows, _) = read("");
        let mut same = rows.clone();
        same.0[0].window = DurationField::from_ms(60_000);
        same.0.push(LimitRow::default());
        let (other, _) = read("&limit-name=c&limit-limit=x");

        assert!(!rows.differ_from(&same));
        assert!(rows.differ_from(&other));
    }

    #[test]
    fn limit_rows_report_more_than_50_limits() {
        let errors = |count: usize| {
            let query = "limit-name=abc&limit-limit=1&limit-duration=1&limit-duration-unit=s&"
                .repeat(count);
            let (rows, _) = LimitRows::from_form(&Form::parse(query.as_bytes()));
            let mut fields = FieldReader::default();
            rows.read(&mut fields);
            fields.finish(()).is_err()
        };

        assert_eq!([errors(50), errors(51)], [false, true]);
    }

    #[test]
    fn limit_rows_add_no_row_when_maximum_is_reached() {
        let added = |count: usize| {
            let query = "limit-name=a&".repeat(count) + "add=limit";
            let (rows, _) = LimitRows::from_form(&Form::parse(query.as_bytes()));
            (rows.iter().count(), rows.has_capacity())
        };

        assert_eq!([added(48), added(49), added(50)], [(49, true), (50, false), (50, false)]);
    }
}
