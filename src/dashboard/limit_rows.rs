//! Form rows for the rate limits of a key or an identity. One row can be added or removed at a time.

use foundation::model::Ratelimit;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::duration_field::{DurationField, nth_value, parse_number};
use super::form::Form;

/// The maximum number of limits, as the operations define it.
const LIMITS_MAX: usize = 50;
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

    fn to_request_json(&self) -> Value {
        json!({
            "name": self.name, "limit": parse_number(&self.limit), "duration": self.window.to_ms(),
            "autoApply": self.is_auto,
        })
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
        self.0.len() < LIMITS_MAX
    }

    /// Returns the non-empty rows as fields of an operation's request.
    pub fn asked(&self) -> Vec<Value> {
        self.0.iter().filter(|row| !row.is_blank()).map(LimitRow::to_request_json).collect()
    }
}

#[cfg(test)]
mod tests {
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
    fn limit_rows_skip_blank_rows_and_keep_invalid_numbers_as_text() {
        let (rows, _) = read("&limit-name=&limit-name=c&limit-limit=&limit-limit=x");

        let expected = json!([
            { "name": "a", "limit": 1, "duration": 60_000, "autoApply": false },
            { "name": "b", "limit": 2, "duration": 7_200_000, "autoApply": true },
            { "name": "c", "limit": "x", "duration": "", "autoApply": false },
        ]);
        assert_eq!(json!(rows.asked()), expected);
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
