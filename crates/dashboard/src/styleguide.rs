//! The style guide, a page of debug builds: every component with example values. The browser tests compare its pictures,
//! and `docs/design.md` shows them.

use askama::Template;
use axum::Router;
use axum::routing::get;

use super::PageResult;
use super::charts::{BarChart, ChartSeries};
use super::format::TimeLabel;
use super::icons;
use super::layout::Layout;
use super::pagination::PageLinks;
use super::render_page;
use super::sort_link::{Direction, SortLink};

pub fn routes() -> Router {
    Router::new().route("/dashboard/styleguide", get(show))
}

#[derive(Template)]
#[template(path = "styleguide.html")]
struct StyleGuidePage {
    layout: Layout,
    /// The colors: name of the token, and what it is for.
    colors: [(&'static str, &'static str); 17],
    icons: [(&'static str, &'static str); 13],
    chart: BarChart,
    empty_chart: BarChart,
    moment: TimeLabel,
    sort: Option<SortLink>,
    pages: PageLinks,
}

async fn show() -> PageResult {
    render_page(&StyleGuidePage {
        layout: Layout::for_style_guide(),
        colors: COLORS,
        icons: ICONS,
        chart: draw_chart(&[
            ("Valid", "c-good", [40, 52, 61, 58, 70, 66, 81, 77, 90, 84, 88, 97]),
            ("Rate limited", "c-limited", [4, 6, 3, 9, 5, 8, 6, 12, 7, 5, 9, 4]),
            ("Disabled", "c-off", [1, 0, 2, 1, 0, 3, 0, 1, 2, 0, 1, 0]),
        ]),
        empty_chart: draw_chart(&[]),
        moment: TimeLabel { exact: "2026-03-01T12:00:00Z".into(), text: "2 hours ago".into() },
        sort: Some(SortLink {
            direction: Direction::Descending,
            is_default: true,
            path: "#lists".into(),
        }),
        pages: PageLinks { first: Some("#lists".into()), next: Some("#lists".into()) },
    })
}

const COLORS: [(&str, &str); 17] = [
    ("ground", "The page"),
    ("side", "Navigation"),
    ("surface", "Panels, fields"),
    ("raised", "Hover, code"),
    ("pressed", "Current entry"),
    ("line", "Lines"),
    ("line-strong", "Edges of buttons"),
    ("edge", "Edges of fields"),
    ("text", "Text"),
    ("muted", "Secondary text"),
    ("accent", "Links, main action"),
    ("accent-soft", "Behind accent"),
    ("good", "Success"),
    ("good-soft", "Behind success"),
    ("bad", "Errors, deletion"),
    ("bad-soft", "Behind errors"),
    ("c-good", "First series of a chart"),
];

const ICONS: [(&str, &str); 13] = [
    ("APIs", icons::APIS),
    ("Keys", icons::KEYS),
    ("Identities", icons::IDENTITIES),
    ("Permissions", icons::PERMISSIONS),
    ("Rate limits", icons::RATELIMITS),
    ("Gateways", icons::GATEWAYS),
    ("Overview", icons::OVERVIEW),
    ("Analytics", icons::ANALYTICS),
    ("Logs", icons::LOGS),
    ("Audit log", icons::AUDIT),
    ("Root keys", icons::ROOT_KEYS),
    ("Members", icons::MEMBERS),
    ("Imports", icons::IMPORTS),
];

/// Draws a chart of the hours of half a day.
fn draw_chart(series: &[(&str, &'static str, [i64; 12])]) -> BarChart {
    let hours: Vec<String> = (0..12).map(|hour| format!("{hour:02}:00")).collect();
    let series: Vec<ChartSeries> = series
        .iter()
        .map(|(name, class, values)| ChartSeries {
            name: (*name).to_owned(),
            class,
            values: values.to_vec(),
        })
        .collect();
    let title = "Verifications per hour, by outcome (UTC)".to_owned();
    BarChart::new(title, "Hour", &hours, &series, "requests", |value| value.to_string())
}
