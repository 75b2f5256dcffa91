//! What commands read: files, durations, points in time and lists of options.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read};

use foundation::clock::{Clock, Timestamp};
use jiff::{Span, SpanRelativeTo};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::CommandError;

/// The maximum size of a file, or of standard input, that is read at once.
pub const FILE_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// What stands for standard input.
pub const STDIN: &str = "-";

/// Reads a file, or standard input for `-`, whose content is UTF-8. The error names the option.
pub fn read_text(option: &str, path: &str, max_bytes: u64) -> Result<String, CommandError> {
    let failed =
        |e: io::Error| CommandError::Usage(format!("{option}: failed to read {path}: {e}"));
    let bytes = match path {
        STDIN => read_bytes(io::stdin().lock(), max_bytes),
        path => File::open(path).and_then(|file| read_bytes(file, max_bytes)),
    };
    let bytes = bytes.map_err(failed)?.ok_or_else(|| {
        CommandError::Usage(format!("{option}: {path} is larger than {max_bytes} bytes"))
    })?;
    String::from_utf8(bytes)
        .map_err(|_| CommandError::Usage(format!("{option}: {path} is not encoded in UTF-8")))
}

/// Reads to the end. Returns `None` if there are more bytes than this.
pub fn read_bytes(reader: impl Read, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    reader.take(max_bytes + 1).read_to_end(&mut bytes)?;
    let is_larger = bytes.len() as u64 > max_bytes;
    Ok((!is_larger).then_some(bytes))
}

/// Reads a file with JSON, or standard input for `-`.
pub fn read_json(option: &str, path: &str, max_bytes: u64) -> Result<Value, CommandError> {
    let text = read_text(option, path, max_bytes)?;
    serde_json::from_str(&text)
        .map_err(|e| CommandError::Usage(format!("{option}: {path} is not JSON: {e}")))
}

/// Reads the first line of standard input, without a prompt unless it is a terminal.
#[expect(clippy::print_stderr, reason = "a prompt that does not mix with the result")]
pub fn read_line(prompt: &str, max_bytes: u64) -> Result<String, CommandError> {
    if io::stdin().is_terminal() {
        eprint!("{prompt}: ");
        let mut line = String::new();
        io::stdin()
            .read_line(&mut line)
            .map_err(|e| CommandError::Usage(format!("failed to read standard input: {e}")))?;
        return Ok(line.trim().to_owned());
    }
    let text = read_text("standard input", STDIN, max_bytes)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Parses a number of what is counted, such as credits.
pub fn parse_count(text: &str) -> Result<i64, String> {
    let parsed = text.parse().ok().filter(|count| *count >= 0);
    parsed.ok_or_else(|| format!("must be a whole number from 0 to {}", i64::MAX))
}

/// Parses a duration with units, such as `90s`, `15m`, `1h 30m` or `7d`, to milliseconds.
pub fn parse_duration_ms(text: &str) -> Result<i64, String> {
    let rule = "must be a duration with units, such as 90s, 15m, 1h30m or 7d, of 0 or more";
    let span: Span = text.parse().map_err(|_| rule.to_owned())?;
    let duration =
        span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| rule.to_owned())?;
    i64::try_from(duration.as_millis()).ok().filter(|ms| *ms >= 0).ok_or_else(|| rule.to_owned())
}

/// Parses a time as RFC 3339 defines it, or a duration from now, to Unix milliseconds.
pub fn parse_moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Ok(Timestamp(at.as_millisecond()));
    }
    match parse_duration_ms(text) {
        Ok(ms) => Ok(Clock::System.now().plus_ms(ms)),
        Err(_) => {
            Err("must be a time such as 2030-01-31T12:00:00Z, or a duration from now such as 90d"
                .to_owned())
        }
    }
}

/// The fields of a JSON object by name, each with its JSON text unchanged: metadata is stored as it was written.
pub type RawFields = BTreeMap<String, Box<RawValue>>;

/// Returns the JSON text of a value.
pub fn to_raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).expect("a value is JSON")
}

/// The fields of a request, in which options take precedence over a file.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct RequestFields(RawFields);

impl RequestFields {
    /// Reads the fields in a file with a JSON object. Without one there are none.
    pub fn read(option: &str, path: Option<&str>) -> Result<Self, CommandError> {
        let Some(path) = path else { return Ok(Self::default()) };
        let text = read_text(option, path, FILE_MAX_BYTES)?;
        let fields = serde_json::from_str(&text).map_err(|e| match e.is_data() {
            true => format!("{option}: {path} must contain a JSON object"),
            false => format!("{option}: {path} is not JSON: {e}"),
        });
        fields.map(Self).map_err(CommandError::Usage)
    }

    /// Returns the fields of a JSON object, and none of another value.
    pub fn from_value(value: Value) -> Self {
        match value {
            Value::Object(fields) => {
                Self(fields.iter().map(|(name, value)| (name.clone(), to_raw(value))).collect())
            }
            _ => Self::default(),
        }
    }

    /// Sets a field if there is a value.
    pub fn set(&mut self, name: &str, value: Option<impl Into<Value>>) {
        self.set_raw(name, value.map(|value| to_raw(&value.into())));
    }

    /// Sets a field if there is a value, whose JSON text stays unchanged.
    pub fn set_raw(&mut self, name: &str, value: Option<Box<RawValue>>) {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value);
        }
    }

    /// Sets a field, or clears it if the text is empty.
    pub fn set_or_clear(&mut self, name: &str, text: Option<String>) {
        let value =
            text.map(|text| if text.is_empty() { Value::Null } else { Value::String(text) });
        self.set(name, value);
    }

    /// Sets a list if the option was given. Empty values are left out, so that one of them makes an empty list.
    pub fn set_list(&mut self, name: &str, items: Option<Vec<String>>) {
        let items = items.map(|items| {
            items.into_iter().filter(|item| !item.is_empty()).map(Value::String).collect::<Vec<_>>()
        });
        self.set(name, items);
    }

    /// Removes fields without a value.
    pub fn remove_nulls(&mut self) {
        self.0.retain(|_, value| value.get() != "null");
    }

    pub fn get(&self, name: &str) -> Option<Value> {
        serde_json::from_str(self.0.get(name)?.get()).ok()
    }

    pub fn into_value(self) -> Value {
        json!(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_if_they_are_within_the_maximum() {
        for (text, expected) in [("", Some("")), ("abc", Some("abc")), ("abcd", None)] {
            let read = read_bytes(text.as_bytes(), 3).expect("text can be read");
            assert_eq!(read, expected.map(|text| text.as_bytes().to_vec()), "{text}");
        }
    }

    #[test]
    fn counts_are_within_their_bounds_and_exact() {
        for (text, count) in [
            ("0", 0),
            ("9007199254740993", 9_007_199_254_740_993),
            ("9223372036854775807", i64::MAX),
        ] {
            assert_eq!(parse_count(text), Ok(count));
        }
        for text in ["", "-1", "1.5", "1e3", "many", "9223372036854775808"] {
            let is_bounded = |error: String| error.ends_with("from 0 to 9223372036854775807");
            assert!(parse_count(text).is_err_and(is_bounded), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit_and_are_not_negative() {
        for (text, ms) in [
            ("0s", 0),
            ("1500ms", 1500),
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
        for text in ["", "90", "-1s", "1 month", "soon", "9000000000000000000h"] {
            assert!(parse_duration_ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn moments_are_times_or_durations_from_now() {
        assert_eq!(parse_moment("1970-01-01T00:00:01Z"), Ok(Timestamp(1000)));
        let (in_an_hour, now) = (parse_moment("1h").map(|at| at.0), Clock::System.now().0);
        assert!(in_an_hour.is_ok_and(|at| (at - now - 3_600_000).abs() < 60_000));
        assert!(parse_moment("tomorrow").is_err_and(|error| error.contains("90d")));
    }
}
