//! The fields of a form for an expiry: an option, and the time for the option of a custom date.

use foundation::clock::{DAY_MS, Timestamp};

use super::field_reader::FieldReader;
use super::form::Form;

/// The value of the option of a custom date.
const CUSTOM: &str = "at";
/// The options for an expiry: never, after a number of days, or at a custom date.
pub const EXPIRY_OPTIONS: [(&str, &str); 7] = [
    ("", "Never"),
    ("1", "In 1 day"),
    ("7", "In 7 days"),
    ("30", "In 30 days"),
    ("90", "In 90 days"),
    ("365", "In 1 year"),
    (CUSTOM, "Custom date…"),
];

/// The fields, as submitted.
pub struct ExpiryFields {
    pub expires: String,
    /// The custom date, to the second.
    pub expires_at: String,
}

impl ExpiryFields {
    pub fn from_form(form: &Form) -> Self {
        let text = |name: &str| form.text(name).trim().to_owned();
        Self { expires: text("expires"), expires_at: text("expires-at") }
    }

    /// Creates the fields of a stored expiry.
    pub fn from_time(at: Option<Timestamp>) -> Self {
        Self {
            expires: at.map_or("", |_| CUSTOM).to_owned(),
            expires_at: at.map(format_second).unwrap_or_default(),
        }
    }

    /// Reads the expiry. Returns `None` if there is none or the fields are invalid.
    pub fn read(&self, fields: &mut FieldReader, now: Timestamp) -> Option<Timestamp> {
        read_expiry(fields, &self.expires, &self.expires_at, now)
    }
}

/// Reads the expiry of an option; `custom` is the time of a custom date. Returns `None` if there is none or it is invalid.
pub fn read_expiry(
    fields: &mut FieldReader,
    option: &str,
    custom: &str,
    now: Timestamp,
) -> Option<Timestamp> {
    match option {
        "" => None,
        CUSTOM => fields.expiry("expires", custom),
        days => {
            let days: i64 = days.parse().unwrap_or(i64::MAX);
            Some(fields.check_expiry("expires", now.plus_ms(days.saturating_mul(DAY_MS))))
        }
    }
}

/// Formats a time to the second, in UTC, for a form field.
fn format_second(at: Timestamp) -> String {
    let stamp = at.to_calendar();
    stamp.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}
