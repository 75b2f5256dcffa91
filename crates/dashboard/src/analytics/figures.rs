//! The key figures above the charts, and their differences to the period before.

use domain::analytics_access::Traffic;
use domain::keys::VerificationCode;
use foundation::model::EventKind;

use super::super::format::{format_grouped, format_latency};
use super::traffic::PERCENTILES;

/// A number on a tile.
pub struct Figure {
    pub label: &'static str,
    pub value: String,
    /// The difference to the period before; `None` if that is not known or had no data.
    pub change: Option<String>,
}

impl Figure {
    /// Creates a figure of a number, compared with that of the period before if it is known.
    pub fn count(label: &'static str, now: i64, before: Option<i64>) -> Self {
        let change = before.map(|before| describe_count_change(now, before));
        Self { label, value: format_grouped(now), change }
    }
}

/// Returns the figures of the requests of a kind.
pub fn build_figures(kind: EventKind, now: &Traffic, before: Option<&Traffic>) -> Vec<Figure> {
    let (label, good) = match kind {
        EventKind::Verifications => ("Verifications", VerificationCode::Valid.as_str()),
        EventKind::Ratelimits => ("Limit checks", "true"),
    };
    let count =
        |label, number: fn(&Traffic) -> i64| Figure::count(label, number(now), before.map(number));
    let rejected =
        |traffic: &Traffic| traffic.total_count() - traffic.outcomes.get(good).unwrap_or(&0);
    let share = |traffic: &Traffic| format_share(rejected(traffic), traffic.total_count());
    let mut figures = vec![
        count(label, Traffic::total_count),
        Figure {
            label: "Rejected",
            value: share(now),
            change: before.and_then(|before| {
                let permille = |traffic| share_permille(rejected(traffic), traffic.total_count());
                describe_share_change(permille(now), permille(before), &share(before))
            }),
        },
    ];
    if kind == EventKind::Verifications {
        figures.push(count("Credits spent", |traffic| traffic.spent_credits));
    }
    figures.extend(PERCENTILES.iter().map(|percentile| {
        let of_now = percentile.of(now);
        let change = |before| describe_latency_change(of_now, percentile.of(before));
        Figure {
            label: percentile.label,
            value: of_now.map_or_else(|| "–".into(), format_latency),
            change: before.and_then(change),
        }
    }));
    figures
}

/// Describes numbers, shares or latencies that are equal.
const NO_CHANGE: &str = "No change";

/// Describes a difference of numbers, such as `+12 (+25.0%) from 48`.
pub fn describe_count_change(now: i64, before: i64) -> String {
    let difference = now.saturating_sub(before);
    if difference == 0 {
        return NO_CHANGE.into();
    }
    let sign = sign(difference);
    let number = format_grouped(difference.saturating_abs());
    let before_text = format_grouped(before);
    match share_permille(difference.saturating_abs(), before) {
        None | Some(0) => format!("{sign}{number} from {before_text}"),
        Some(permille) => {
            let share = format_permille(permille);
            format!("{sign}{number} ({sign}{share}) from {before_text}")
        }
    }
}

/// Describes a difference of shares in percentage points. Returns `None` if there was no share before.
fn describe_share_change(
    now: Option<i64>,
    before: Option<i64>,
    before_text: &str,
) -> Option<String> {
    let before = before?;
    let Some(now) = now else { return Some(format!("{before_text} before")) };
    if now == before {
        return Some(NO_CHANGE.to_owned());
    }
    let (sign, permille) = (sign(now - before), (now - before).abs());
    Some(format!("{sign}{}.{} points from {before_text}", permille / 10, permille % 10))
}

/// Describes a difference of latencies. Returns `None` if there was none before.
fn describe_latency_change(now: Option<i64>, before: Option<i64>) -> Option<String> {
    let before = before?;
    let before_text = format_latency(before);
    let Some(now) = now else { return Some(format!("{before_text} before")) };
    if now == before {
        return Some(NO_CHANGE.to_owned());
    }
    let difference = now.saturating_sub(before);
    let latency = format_latency(difference.saturating_abs());
    Some(format!("{}{latency} from {before_text}", sign(difference)))
}

fn sign(difference: i64) -> char {
    if difference < 0 { '−' } else { '+' }
}

fn share_permille(part: i64, all: i64) -> Option<i64> {
    let permille = (i128::from(part) * 1_000).checked_div(i128::from(all))?;
    i64::try_from(permille).ok()
}

/// Formats a share in percent. A small positive share is never shown as zero.
pub fn format_share(part: i64, all: i64) -> String {
    match share_permille(part, all) {
        None => "–".into(),
        Some(0) if part > 0 => "< 0.1%".into(),
        Some(permille) => format_permille(permille),
    }
}

fn format_permille(permille: i64) -> String {
    format!("{}.{}%", format_grouped(permille / 10), permille % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_share_shows_one_decimal() {
        let shares = [
            format_share(0, 0),
            format_share(0, 9),
            format_share(1, 3),
            format_share(9, 9),
            format_share(1, 10_000),
            format_share(41, 2),
            format_share(i64::MAX, 1),
        ];

        assert_eq!(shares, ["–", "0.0%", "33.3%", "100.0%", "< 0.1%", "2,050.0%", "–"]);
    }

    #[test]
    fn count_change_is_number_and_share_of_the_number_before() {
        for (now, before, expected) in [
            (60, 48, "+12 (+25.0%) from 48"),
            (3, 4_000, "−3,997 (−99.9%) from 4,000"),
            (0, 4, "−4 (−100.0%) from 4"),
            (4, 4, "No change"),
            (0, 0, "No change"),
            (7, 0, "+7 from 0"),
            (i64::MAX, i64::MAX - 1, "+1 from 9,223,372,036,854,775,806"),
        ] {
            assert_eq!(describe_count_change(now, before), expected);
        }
    }

    #[test]
    fn share_change_is_in_points_if_both_shares_are_known() {
        let change = |now, before| describe_share_change(now, before, "5.0%");

        assert_eq!(change(Some(62), Some(50)).as_deref(), Some("+1.2 points from 5.0%"));
        assert_eq!(change(Some(0), Some(50)).as_deref(), Some("−5.0 points from 5.0%"));
        assert_eq!(change(Some(50), Some(50)).as_deref(), Some("No change"));
        assert_eq!(change(None, Some(50)).as_deref(), Some("5.0% before"));
        assert_eq!(change(Some(50), None), None);
    }

    #[test]
    fn latency_change_is_a_difference_if_both_are_known() {
        let change = describe_latency_change;

        assert_eq!(change(Some(1_500), Some(2_000)).as_deref(), Some("−500 µs from 2.00 ms"));
        assert_eq!(change(Some(9), Some(9)).as_deref(), Some("No change"));
        assert_eq!(change(None, Some(9)).as_deref(), Some("9 µs before"));
        assert_eq!(change(Some(9), None), None);
    }
}
