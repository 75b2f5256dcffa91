//! Times and names, as people read them.

use crate::clock::Timestamp;

/// A moment in a page: to the minute, and how long ago it was or how soon it will be.
#[derive(Debug, Clone)]
pub struct Moment {
    /// As machines read it.
    pub exact: String,
    /// As it stands in the page.
    pub words: String,
}

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

impl Moment {
    pub fn new(at: Timestamp, now: Timestamp) -> Self {
        let stamp = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
        let exact = stamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Self { exact, words: words(at, now, &stamp.strftime("%Y-%m-%d").to_string()) }
    }
}

fn words(at: Timestamp, now: Timestamp, date: &str) -> String {
    let (distance, is_past) = (now.0.saturating_sub(at.0).saturating_abs(), at <= now);
    let told = |count: i64, unit: &str| {
        let plural = if count == 1 { "" } else { "s" };
        if is_past {
            format!("{count} {unit}{plural} ago")
        } else {
            format!("in {count} {unit}{plural}")
        }
    };
    match distance {
        _ if distance < MINUTE_MS && is_past => "just now".to_owned(),
        _ if distance < MINUTE_MS => "in a moment".to_owned(),
        _ if distance < HOUR_MS => told(distance / MINUTE_MS, "minute"),
        _ if distance < DAY_MS => told(distance / HOUR_MS, "hour"),
        _ if distance < 30 * DAY_MS => told(distance / DAY_MS, "day"),
        _ => date.to_owned(),
    }
}

/// A number with its thousands apart; what was counted only so far says so.
pub fn count(number: i64, max: i64) -> String {
    let (shown, more) = if number > max { (max, "+") } else { (number, "") };
    let digits = shown.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + more
}

/// A command that calls an operation.
pub fn curl(base_url: &str, operation: &str, body: &str) -> String {
    format!(
        "curl {base_url}/v2/{operation} -H 'Authorization: Bearer ROOT_KEY' \
        -H 'Content-Type: application/json' -d '{body}'"
    )
}

/// `add_permission_to_key` as a person says it.
pub fn spoken(name: &str) -> String {
    let spaced = name.replace("_api", " API").replace('_', " ");
    let mut letters = spaced.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_by_its_distance_and_from_a_month_on_by_its_date() {
        let now = Timestamp(100 * DAY_MS);
        let told = |ms: i64| Moment::new(now.plus_ms(ms), now).words;

        assert_eq!(told(0), "just now");
        assert_eq!(told(-MINUTE_MS), "1 minute ago");
        assert_eq!(told(-HOUR_MS + 1), "59 minutes ago");
        assert_eq!(told(2 * HOUR_MS), "in 2 hours");
        assert_eq!(told(-29 * DAY_MS), "29 days ago");
        assert_eq!(told(-100 * DAY_MS), "1970-01-01");
    }

    #[test]
    fn a_count_has_its_thousands_apart_and_tells_where_it_stopped() {
        assert_eq!([count(7, 10_000), count(9_999, 10_000)], ["7", "9,999"]);
        assert_eq!(count(10_001, 10_000), "10,000+");
    }

    #[test]
    fn a_name_is_spoken_with_spaces() {
        assert_eq!(spoken("add_permission_to_key"), "Add permission to key");
        assert_eq!(spoken("create_api"), "Create API");
    }
}
