//! Parses the fields of a form into the values of a domain command, within their bounds.
//!
//! An invalid field gets a placeholder, so that the other fields are checked too: [`FieldReader::finish`] returns the
//! command only if no field is invalid.

use std::fmt::Display;
use std::ops::RangeInclusive;

use domain::bounds::EXPIRES_MAX_MS;
use foundation::clock::Timestamp;
use foundation::error::{Error, FieldError, Result};
use foundation::model::{AllowedChars, BoundedMeta, Meta};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use request::json_depth::{DEPTH_MAX, is_too_deep};

use super::duration_field::DurationField;
use super::format::{format_minute, format_size};
use super::number_field::{duration_rule, integer_rule, parse_integer};

/// The maximum number of errors that are shown. Further ones are dropped.
const ERRORS_MAX: usize = 100;

/// Reads fields and collects the errors of all of them.
///
/// A field is named by its path: `credits.remaining`, `ratelimits[0].name`. An error is shown beside the field of the
/// path without indexes.
#[derive(Debug, Default)]
pub struct FieldReader(Vec<FieldError>);

impl FieldReader {
    /// Returns the command that was made from the fields, or the errors.
    pub fn finish<T>(self, command: T) -> Result<T> {
        if self.0.is_empty() { Ok(command) } else { Err(Error::Invalid(self.0)) }
    }

    /// Records an error of a field. The message is a complete sentence.
    pub fn add_error(&mut self, path: &str, message: impl Into<String>) {
        if self.0.len() < ERRORS_MAX {
            let location = without_indexes(path);
            self.0.push(FieldError { location, message: message.into(), fix: None });
        }
    }

    /// Records that a field violates a rule. The rule ends the sentence that the path of the field begins.
    pub fn reject(&mut self, path: &str, rule: impl Display) {
        self.add_error(path, format!("{path} {rule}"));
    }

    /// Adds the errors that the domain has found in the whole command, except for fields that have an error already. Each
    /// message begins with the path of its field.
    pub fn add_domain_errors(&mut self, checked: Result<()>) {
        let Err(Error::Invalid(errors)) = checked else { return };
        for error in errors {
            let path = error.message.split(' ').next().unwrap_or_default().to_owned();
            if !self.0.iter().any(|e| e.location == path || e.message.starts_with(&path)) {
                self.add_error(&path, error.message);
            }
        }
    }

    /// Reads a text.
    pub fn text(
        &mut self,
        path: &str,
        text: &str,
        lengths: RangeInclusive<usize>,
        chars: AllowedChars,
    ) -> String {
        if !lengths.contains(&text.chars().count()) {
            let (min, max) = (lengths.start(), lengths.end());
            let range = if *min == 0 { "at most".to_owned() } else { format!("{min} to") };
            self.reject(path, format!("must have {range} {} characters", format_size(*max)));
        } else if !text.chars().all(|c| chars.contains(c)) {
            self.reject(path, chars.rule());
        }
        text.to_owned()
    }

    /// Reads a text of at most `length_max` characters. Returns `None` if it is empty.
    pub fn optional_text(
        &mut self,
        path: &str,
        text: &str,
        length_max: usize,
        chars: AllowedChars,
    ) -> Option<String> {
        (!text.is_empty()).then(|| self.text(path, text, 1..=length_max, chars))
    }

    /// Reads a list of at most `count_max` texts that have 1 to `length_max` characters each.
    pub fn texts<T: AsRef<str>>(
        &mut self,
        path: &str,
        texts: &[T],
        count_max: usize,
        length_max: usize,
        chars: AllowedChars,
    ) -> Vec<String> {
        self.check_count(path, texts.len(), count_max);
        let read = |(at, text): (usize, &T)| {
            self.text(&format!("{path}[{at}]"), text.as_ref(), 1..=length_max, chars)
        };
        texts.iter().enumerate().map(read).collect()
    }

    /// Checks the length of a list.
    pub fn check_count(&mut self, path: &str, count: usize, count_max: usize) {
        if count > count_max {
            self.reject(path, format!("must have at most {} entries", format_size(count_max)));
        }
    }

    /// Reads an integer. Text that is none is read as 0.
    pub fn integer(&mut self, path: &str, text: &str, bounds: RangeInclusive<i64>) -> i64 {
        self.bounded_integer(path, parse_integer(text), bounds)
    }

    /// Reads an integer. Returns `None` if the text is empty.
    pub fn optional_integer(
        &mut self,
        path: &str,
        text: &str,
        bounds: RangeInclusive<i64>,
    ) -> Option<i64> {
        (!text.is_empty()).then(|| self.integer(path, text, bounds))
    }

    /// Checks a parsed integer; `None` is text or JSON that is no integer.
    pub fn bounded_integer(
        &mut self,
        path: &str,
        number: Option<i128>,
        bounds: RangeInclusive<i64>,
    ) -> i64 {
        if !is_within(number, &bounds) {
            self.reject(path, integer_rule(number, &bounds));
        }
        saturate(number)
    }

    /// Reads a duration, in milliseconds.
    pub fn duration_ms(
        &mut self,
        path: &str,
        duration: &DurationField,
        bounds: RangeInclusive<i64>,
    ) -> i64 {
        let ms = duration.to_ms();
        if !is_within(ms, &bounds) {
            self.reject(path, duration_rule(ms, &bounds));
        }
        saturate(ms)
    }

    /// Reads an expiry time that was entered in UTC. Returns `None` if the text is invalid.
    pub fn expiry(&mut self, path: &str, text: &str) -> Option<Timestamp> {
        let time = text.parse::<DateTime>().and_then(|at| at.to_zoned(TimeZone::UTC));
        let Ok(time) = time else {
            self.reject(path, "must be a date and time, such as 2030-12-31T12:00");
            return None;
        };
        Some(self.check_expiry(path, Timestamp(time.timestamp().as_millisecond())))
    }

    /// Checks the bounds of an expiry time.
    pub fn check_expiry(&mut self, path: &str, at: Timestamp) -> Timestamp {
        if !(0..=EXPIRES_MAX_MS).contains(&at.0) {
            let [min, max] = [0, EXPIRES_MAX_MS].map(|ms| format_minute(Timestamp(ms)));
            self.reject(path, format!("must be from {min} to {max}"));
        }
        at
    }

    /// Reads a JSON object. Returns `None` if the text is invalid.
    pub fn meta(&mut self, path: &str, text: &str) -> Option<Meta> {
        if is_too_deep(text.as_bytes()) {
            self.reject(path, format!("must not nest deeper than {DEPTH_MAX} levels"));
            return None;
        }
        let meta = serde_json::from_str::<BoundedMeta>(text);
        if let Err(e) = &meta {
            let (line, column, most) = (e.line(), e.column(), BoundedMeta::FIELDS_MAX);
            let fault = match e.is_data() {
                true => format!("{path} must be a JSON object with at most {most} fields"),
                false => format!("Metadata isn't valid JSON at line {line}, column {column}"),
            };
            self.add_error(path, fault);
        }
        meta.ok().map(Meta::from)
    }
}

/// Removes the indexes of list items from a path: `ratelimits[0].name` becomes `ratelimits.name`.
pub fn without_indexes(path: &str) -> String {
    let mut parts = path.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| name + part.split_once(']').map_or("", |(_, rest)| rest))
}

fn is_within(number: Option<i128>, bounds: &RangeInclusive<i64>) -> bool {
    let number = number.and_then(|number| i64::try_from(number).ok());
    number.is_some_and(|number| bounds.contains(&number))
}

/// Returns the nearest `i64`; 0 without a number.
fn saturate(number: Option<i128>) -> i64 {
    let number = number.unwrap_or(0).clamp(i64::MIN.into(), i64::MAX.into());
    i64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::form::Form;
    use super::*;

    /// The messages that reading causes.
    fn errors<T>(read: impl FnOnce(&mut FieldReader) -> T) -> Vec<String> {
        let mut fields = FieldReader::default();
        read(&mut fields);
        match fields.finish(()) {
            Err(Error::Invalid(errors)) => errors.into_iter().map(|error| error.message).collect(),
            _ => Vec::new(),
        }
    }

    fn is_valid<T>(read: impl FnOnce(&mut FieldReader) -> T) -> bool {
        errors(read).is_empty()
    }

    #[test]
    fn text_is_rejected_when_its_length_is_out_of_bounds() {
        let text = |length: usize, min: usize| {
            let text = "é".repeat(length);
            errors(|fields| fields.text("name", &text, min..=5, AllowedChars::Printable))
        };

        assert_eq!([text(3, 3), text(5, 3), text(0, 0), text(5, 0)], [[""; 0]; 4]);
        assert_eq!([text(2, 3), text(6, 3)], [["name must have 3 to 5 characters"]; 2]);
        assert_eq!(text(6, 0), ["name must have at most 5 characters"]);
    }

    #[test]
    fn text_is_rejected_when_it_contains_other_characters() {
        let is_text = |text: &str, chars| is_valid(|f| f.text("field", text, 1..=99, chars));

        for (chars, allowed, other) in [
            (AllowedChars::NonNul, "a\n\u{202e}", "\0"),
            (AllowedChars::Printable, "é 漢🦀", "a\u{202e}b"),
            (AllowedChars::Word, "aZ_0", "a-b"),
            (AllowedChars::Slug, "a:b-c.*_0", "a b"),
            (AllowedChars::ExternalId, "a.b-c_0", "a:b"),
        ] {
            assert!(is_text(allowed, chars) && !is_text(other, chars), "{chars:?}");
        }
        let message = errors(|fields| fields.text("slug", "a b", 1..=9, AllowedChars::Slug));
        assert_eq!(message, ["slug must contain only letters, digits and _ : - . *"]);
    }

    #[test]
    fn optional_fields_are_none_when_they_are_empty() {
        let mut fields = FieldReader::default();

        assert_eq!(fields.optional_text("name", "", 5, AllowedChars::Word), None);
        assert_eq!(fields.optional_text("name", "a", 5, AllowedChars::Word), Some("a".into()));
        assert_eq!(fields.optional_integer("bytes", "", 1..=5), None);
        assert_eq!(fields.optional_integer("bytes", "5", 1..=5), Some(5));
        assert!(fields.finish(()).is_ok());
        let text = |text: &str| is_valid(|f| f.optional_text("a", text, 5, AllowedChars::Word));
        assert!(text("aaaaa") && !text("aaaaaa"));
    }

    #[test]
    fn list_is_rejected_when_it_or_a_text_is_too_long() {
        let list = |texts: &[&str]| errors(|f| f.texts("tags", texts, 2, 3, AllowedChars::Word));

        assert_eq!(list(&["a", "bbb"]), [""; 0]);
        assert_eq!(list(&["a", "b", "c"]), ["tags must have at most 2 entries"]);
        let wrong = ["tags[0] must have 1 to 3 characters", "tags[1] must have 1 to 3 characters"];
        assert_eq!(list(&["", "bbbb"]), wrong);
    }

    #[test]
    fn integer_is_rejected_when_it_is_out_of_bounds_or_none() {
        let integer = |text: &str| errors(|fields| fields.integer("limit", text, 1..=i64::MAX));

        for text in ["1", " 2 ", "+3", "10,000", "10 000", "9223372036854775807"] {
            assert_eq!(integer(text), [""; 0], "{text}");
        }
        for text in ["0", "-1", "1.5", "10,00", "many", ""] {
            assert_eq!(integer(text), ["limit must be a whole number of at least 1"], "{text}");
        }
        assert_eq!(integer("9223372036854775808").len(), 1);
    }

    #[test]
    fn duration_is_rejected_when_it_is_out_of_bounds_or_none() {
        let duration = |number: &str, unit: &str| {
            let form = Form::parse(format!("d={number}&d-unit={unit}").as_bytes());
            let field = DurationField::from_form(&form, "d", 0);
            errors(|fields| fields.duration_ms("window", &field, 1_000..=86_400_000))
        };

        for (number, unit) in [("1000", "ms"), ("1", "s"), ("24", "h"), ("1", "d")] {
            assert_eq!(duration(number, unit), [""; 0], "{number} {unit}");
        }
        let message = "window must be a duration from 1 second to 1 day";
        for (number, unit) in
            [("999", "ms"), ("86400001", "ms"), ("9223372036854775807", "d"), ("x", "s"), ("", "s")]
        {
            assert_eq!(duration(number, unit), [message], "{number} {unit}");
        }
    }

    #[test]
    fn expiry_is_rejected_when_it_is_out_of_bounds_or_no_time() {
        let expiry = |text: &str| errors(|fields| fields.expiry("expires", text));

        for text in ["1970-01-01T00:00", "2030-12-31T12:00:05", "2100-01-01T00:00"] {
            assert_eq!(expiry(text), [""; 0], "{text}");
        }
        let message = "expires must be from 1970-01-01T00:00 to 2100-01-01T00:00";
        for text in ["1969-12-31T23:59:59", "2100-01-01T00:00:01"] {
            assert_eq!(expiry(text), [message], "{text}");
        }
        for text in ["", "tomorrow", "2030-02-30T00:00"] {
            assert_eq!(expiry(text), ["expires must be a date and time, such as 2030-12-31T12:00"]);
        }
        let mut fields = FieldReader::default();
        assert_eq!(fields.expiry("expires", "1970-01-01T00:01"), Some(Timestamp(60_000)));
    }

    #[test]
    fn meta_is_rejected_when_it_is_no_object_or_out_of_bounds() {
        let meta = |text: &str| errors(|fields| fields.meta("meta", text));
        let object = |count: usize| {
            let members: Vec<_> = (0..count).map(|at| format!("\"{at}\":0")).collect();
            format!("{{{}}}", members.join(","))
        };
        let nested = |depth: usize| "{\"a\":".repeat(depth) + "0" + &"}".repeat(depth);

        for text in [object(0), object(100), nested(64)] {
            assert_eq!(meta(&text), [""; 0], "{text}");
        }
        for text in ["[1]", "1", &object(101)] {
            assert_eq!(meta(text), ["meta must be a JSON object with at most 100 fields"]);
        }
        assert_eq!(meta(&nested(65)), ["meta must not nest deeper than 64 levels"]);
        assert_eq!(meta("{"), ["Metadata isn't valid JSON at line 1, column 1"]);
        assert_eq!(meta("{}\n x"), ["Metadata isn't valid JSON at line 2, column 2"]);
    }

    #[test]
    fn finish_returns_all_errors_at_their_fields() {
        let mut fields = FieldReader::default();
        fields.text("name", "", 1..=5, AllowedChars::Word);
        fields.integer("ratelimits[0].limits[12].limit", "0", 1..=5);
        fields.add_error("keys", "the first line of keys is empty");

        let Err(Error::Invalid(errors)) = fields.finish(()) else { panic!("no errors") };
        let found: Vec<_> = errors.iter().map(|e| (&*e.location, &*e.message)).collect();
        let expected = [
            ("name", "name must have 1 to 5 characters"),
            (
                "ratelimits.limits.limit",
                "ratelimits[0].limits[12].limit must be a whole number from 1 to 5",
            ),
            ("keys", "the first line of keys is empty"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn domain_errors_are_added_for_fields_without_an_error() {
        let invalid = |message: &str| FieldError {
            location: "/properties/any".into(),
            message: message.into(),
            fix: None,
        };
        let found = ["rules[0].path must begin with `/`", "rules[1] must be short", "name is long"];
        let domain = || Err(Error::Invalid(found.map(invalid).to_vec()));

        let messages = errors(|fields| {
            fields.reject("rules[1].cost", "must be an integer");
            fields.add_domain_errors(domain());
            fields.add_domain_errors(Ok(()));
        });

        assert_eq!(messages, ["rules[1].cost must be an integer", found[0], found[2]]);
    }

    #[test]
    fn errors_beyond_100_are_dropped() {
        let reject =
            |count: usize| errors(|fields| (0..count).for_each(|_| fields.reject("a", "b")));

        assert_eq!([reject(100).len(), reject(101).len()], [100, 100]);
    }
}
