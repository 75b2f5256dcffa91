//! Formats times, numbers, JSON and names for display.

pub use domain::wording::{format_duration, format_grouped};
use foundation::clock::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use foundation::id::KeyId;
use foundation::model::VerificationCode;

/// Returns the label of an outcome; its text if another version recorded it and this one does not know it.
pub fn outcome_label(code: String) -> String {
    match VerificationCode::parse(&code) {
        Some(known) => known.label().to_owned(),
        None => code,
    }
}

/// A time in a page: relative to now within 30 days, else a date. A future time is rounded to the nearest minute first.
#[derive(Debug, Clone)]
pub struct TimeLabel {
    /// The time in RFC 3339, for the `datetime` attribute.
    pub exact: String,
    /// The displayed text.
    pub text: String,
}

impl TimeLabel {
    pub fn new(at: Timestamp, now: Timestamp) -> Self {
        let stamp = at.to_calendar();
        let exact = stamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Self { exact, text: format_relative(at, now, &stamp.strftime("%Y-%m-%d").to_string()) }
    }

    /// Formats the exact time for readers. A script adds their local time.
    pub fn title(&self) -> String {
        self.exact.replace('T', " ").replace('Z', " UTC")
    }
}

fn format_relative(at: Timestamp, now: Timestamp, date: &str) -> String {
    let (distance, is_past) = (now.0.saturating_sub(at.0).saturating_abs(), at <= now);
    let relative = |count: i64, unit: &str| {
        let plural = if count == 1 { "" } else { "s" };
        if is_past {
            format!("{count} {unit}{plural} ago")
        } else {
            format!("in {count} {unit}{plural}")
        }
    };
    if distance < MINUTE_MS {
        return if is_past { "just now" } else { "in a moment" }.to_owned();
    }
    // What was set to expire in seven days is shown a moment later: that it is "in 6 days" looks like an error.
    let distance = if is_past { distance } else { distance.saturating_add(MINUTE_MS / 2) };
    match distance {
        _ if distance < HOUR_MS => relative(distance / MINUTE_MS, "minute"),
        _ if distance < DAY_MS => relative(distance / HOUR_MS, "hour"),
        _ if distance < 30 * DAY_MS => relative(distance / DAY_MS, "day"),
        _ => date.to_owned(),
    }
}

/// Formats a time to the second, in UTC.
pub fn format_utc(at: Timestamp) -> String {
    let stamp = at.to_calendar();
    stamp.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Formats a time to the millisecond, in UTC.
pub fn format_moment_to_ms(at: Timestamp) -> String {
    let stamp = at.to_calendar();
    stamp.strftime("%Y-%m-%d %H:%M:%S.%3f").to_string()
}

/// Formats a time to the minute, in UTC, for a `datetime-local` field.
pub fn format_minute(at: Timestamp) -> String {
    let stamp = at.to_calendar();
    stamp.strftime("%Y-%m-%dT%H:%M").to_string()
}

/// Formats a number with thousands separators. A number above `max`, where counting stopped, is shown as `max+`.
pub fn format_count(number: i64, max: i64) -> String {
    let (shown, more) = if number > max { (max, "+") } else { (number, "") };
    format_grouped(shown) + more
}

/// Formats the start of a key: `live_3xTw…`. The start of a key imported by its hash is unknown; it is shown by its id.
pub fn format_start(start: &str, id: &KeyId) -> String {
    match start {
        "" => id.to_string(),
        start => format!("{start}…"),
    }
}

/// Formats the size of something in memory with thousands separators.
pub fn format_size(size: usize) -> String {
    format_grouped(i64::try_from(size).unwrap_or(i64::MAX))
}

/// Formats a number with its noun: `1 key`, `10,000 keys`. A number above `max` is shown as in [`format_count`].
pub fn format_quantity(number: i64, max: i64, one: &str) -> String {
    format!("{} {one}{}", format_count(number, max), if number == 1 { "" } else { "s" })
}

/// Formats a duration in microseconds with three digits.
pub fn format_latency(us: i64) -> String {
    match us {
        ..1_000 => format!("{us} µs"),
        1_000..10_000 => format!("{}.{:02} ms", us / 1_000, us % 1_000 / 10),
        10_000..100_000 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        100_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{}.{:02} s", us / 1_000_000, us % 1_000_000 / 10_000),
    }
}

/// Formats JSON text over several lines. Only whitespace between tokens changes.
pub fn format_json(text: &str) -> String {
    let mut formatted = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    let mut letters = text.chars().peekable();
    let line = |formatted: &mut String, depth: usize| {
        formatted.push('\n');
        formatted.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(letter) = letters.next() {
        if in_string {
            formatted.push(letter);
            in_string = is_escaped || letter != '"';
            is_escaped = !is_escaped && letter == '\\';
            continue;
        }
        match letter {
            '{' | '[' => {
                formatted.push(letter);
                while letters.next_if(char::is_ascii_whitespace).is_some() {}
                let end = if letter == '{' { '}' } else { ']' };
                match letters.next_if_eq(&end) {
                    Some(end) => formatted.push(end),
                    None => {
                        depth += 1;
                        line(&mut formatted, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut formatted, depth);
                formatted.push(letter);
            }
            ',' => {
                formatted.push(letter);
                line(&mut formatted, depth);
            }
            ':' => formatted.push_str(": "),
            space if space.is_ascii_whitespace() => {}
            other => {
                in_string = other == '"';
                formatted.push(other);
            }
        }
    }
    formatted
}

/// Returns a curl command that calls an operation.
pub fn curl_command(base_url: &str, operation: &str, body: &str) -> String {
    format!(
        "curl {base_url}/v2/{operation} -H 'Authorization: Bearer ROOT_KEY' \
        -H 'Content-Type: application/json' -d '{body}'"
    )
}

/// Formats the name of an action for display: `add_permission_to_key` is "Add permission to key".
pub fn humanize(name: &str) -> String {
    let spaced = name.replace("_api", " API").replace('_', " ");
    capitalize(&spaced)
}

/// Returns a text with its first letter in upper case.
pub fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_label_shows_date_when_30_days_or_more_away() {
        let now = Timestamp(100 * DAY_MS);
        let words = |ms: i64| TimeLabel::new(now.plus_ms(ms), now).text;

        assert_eq!(words(0), "just now");
        assert_eq!(words(-MINUTE_MS), "1 minute ago");
        assert_eq!(words(-HOUR_MS + 1), "59 minutes ago");
        assert_eq!(words(2 * HOUR_MS), "in 2 hours");
        assert_eq!(words(MINUTE_MS - 1), "in a moment");
        assert_eq!(words(HOUR_MS - 1), "in 1 hour");
        assert_eq!(words(7 * DAY_MS - 2_000), "in 7 days");
        assert_eq!(words(7 * DAY_MS - MINUTE_MS), "in 6 days");
        assert_eq!(words(-29 * DAY_MS), "29 days ago");
        assert_eq!(words(-100 * DAY_MS), "1970-01-01");
        assert_eq!(words(i64::MAX), "9999-12-30");
        assert_eq!(TimeLabel::new(now, now).title(), "1970-04-11 00:00:00 UTC");
    }

    #[test]
    fn format_count_shows_plus_when_number_exceeds_max() {
        assert_eq!([format_count(7, 10_000), format_count(9_999, 10_000)], ["7", "9,999"]);
        assert_eq!(format_count(10_001, 10_000), "10,000+");
        let keys = [0, 1, 2, 11].map(|number| format_quantity(number, 10, "key"));
        assert_eq!(keys, ["0 keys", "1 key", "2 keys", "10+ keys"]);
        assert_eq!([format_size(0), format_size(1_234_567)], ["0", "1,234,567"]);
    }

    #[test]
    fn format_start_shows_id_when_start_is_unknown() {
        let id = KeyId::from("key_1");

        assert_eq!([format_start("live_3x", &id), format_start("", &id)], ["live_3x…", "key_1"]);
    }

    #[test]
    fn format_latency_shows_three_digits() {
        let formatted =
            [7, 999, 1_000, 9_999, 10_000, 99_999, 100_000, 999_999, 1_234_567].map(format_latency);

        let expected = [
            "7 µs", "999 µs", "1.00 ms", "9.99 ms", "10.0 ms", "99.9 ms", "100 ms", "999 ms",
            "1.23 s",
        ];
        assert_eq!(formatted, expected);
    }

    #[test]
    fn format_json_changes_only_whitespace() {
        let text = r#"{"b":"x, {\"y\"}: \\","a":[1,12345678901234567890.50],"c":{ },"d":[]}"#;

        let formatted = format_json(text);
        let lines = [
            "{",
            r#"  "b": "x, {\"y\"}: \\","#,
            r#"  "a": ["#,
            "    1,",
            "    12345678901234567890.50",
            "  ],",
            r#"  "c": {},"#,
            r#"  "d": []"#,
            "}",
        ];
        assert_eq!(formatted, lines.join("\n"));
        assert_eq!(format_json(&formatted), formatted);
    }

    #[test]
    fn humanize_separates_words_with_spaces() {
        assert_eq!(humanize("add_permission_to_key"), "Add permission to key");
        assert_eq!(humanize("create_api"), "Create API");
    }
}
