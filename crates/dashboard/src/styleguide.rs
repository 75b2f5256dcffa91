//! The style guide, a page of debug builds: every component with example values. The browser tests compare its pictures,
//! and `docs/design.md` shows them.

use askama::Template;
use axum::Router;
use axum::routing::get;
use domain::keys::details::KeyStatus;
use foundation::id::KeyId;

use super::PageResult;
use super::charts::{BarChart, ChartSeries};
use super::duration_field::DurationField;
use super::expiry_field::{EXPIRY_OPTIONS, ExpiryFields};
use super::field_reader::FieldReader;
use super::form::{Form, FormErrors, split_form_errors};
use super::format::TimeLabel;
use super::icons;
use super::key_row::KeySummaryRow;
use super::layout::Layout;
use super::limit_rows::LimitRows;
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
    /// A time after `moment`, in the future.
    reset: TimeLabel,
    sort: Option<SortLink>,
    pages: PageLinks,
    errors: FormErrors,
    window: DurationField,
    expiry: ExpiryFields,
    limit_rows: LimitRows,
    roles: NameExamples,
    keys: [KeySummaryRow; 2],
    refusal: Option<String>,
    /// The search terms of empty lists; empty: all rows are listed.
    search_terms: [&'static str; 2],
}

/// Names to choose from, as in the forms of keys.
struct NameExamples {
    options: Vec<NameExample>,
    has_more: bool,
}

struct NameExample {
    name: &'static str,
    is_checked: bool,
}

async fn show() -> PageResult {
    render_page(&example_page())
}

fn example_page() -> StyleGuidePage {
    StyleGuidePage {
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
        reset: TimeLabel { exact: "2026-03-01T14:00:40Z".into(), text: "in a moment".into() },
        sort: Some(SortLink {
            direction: Direction::Descending,
            is_default: true,
            path: "#lists".into(),
        }),
        pages: PageLinks { first: Some("#lists".into()), next: Some("#lists".into()) },
        errors: example_errors(),
        window: DurationField::from_ms(500),
        expiry: ExpiryFields { expires: "at".into(), expires_at: "2026-03-01T12:00".into() },
        limit_rows: LimitRows::from_form(&Form::parse(EXAMPLE_LIMIT)).0,
        roles: NameExamples {
            options: [("admin", false), ("billing", true), ("editor", true), ("reader", false)]
                .map(|(name, is_checked)| NameExample { name, is_checked })
                .into(),
            has_more: false,
        },
        keys: [
            example_key("key_3xTw9ZbV5yUq1NpLkR7a2C", "Mobile app", "prod_3xTw", KeyStatus::Active),
            example_key(
                "key_9aBc2dEf3gHj4kLm5nPq6R",
                "Old server",
                "prod_9aBc",
                KeyStatus::Expired,
            ),
        ],
        refusal: Some("The e-mail address or the password is wrong.".into()),
        search_terms: ["", "globex"],
    }
}

/// A row of the rate limits of a form. Its limit is invalid.
const EXAMPLE_LIMIT: &[u8] =
    b"limit-name=requests&limit-limit=none&limit-duration=1&limit-duration-unit=min&limit-auto=0";

/// Returns the errors of the fields of the form that shows them.
fn example_errors() -> FormErrors {
    let mut fields = FieldReader::default();
    fields.reject("slug", "must contain only letters, digits and _ . -");
    fields.reject("duration", "must be 1 second to 30 days");
    fields.reject("expires", "must be in the future");
    fields.reject("ratelimits[0].limit", "must be a whole number from 1 to 1,000,000");
    match split_form_errors(fields.finish(())) {
        Ok(Err(errors)) => errors,
        Ok(Ok(())) | Err(_) => FormErrors::default(),
    }
}

fn example_key(id: &str, name: &str, start: &str, status: KeyStatus) -> KeySummaryRow {
    KeySummaryRow {
        id: KeyId::from(id),
        name: name.to_owned(),
        start: start.to_owned(),
        status: status.into(),
    }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The classes of `components.css` without an example: those that only a script adds, and those that only arrange others.
    const WITHOUT_EXAMPLE: [&str; 15] = [
        "agent",
        "canvas",
        "chosen",
        "copy",
        "done",
        "htmx-request",
        "lists",
        "refill",
        "u-cursor-x",
        "u-hz",
        "u-over",
        "u-select",
        "uplot",
        "when-monthly",
        "when-refilled",
    ];

    /// Returns the values of an attribute.
    fn values_of<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
        let begin = format!(" {attribute}=\"");
        page.split(&begin).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    /// Returns the classes that a style sheet names.
    fn classes_of(css: &str) -> BTreeSet<&str> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let names =
            css.split('.').skip(1).filter_map(|rest| rest.split(|c: char| !is_part(c)).next());
        names.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())).collect()
    }

    #[test]
    fn style_guide_has_an_example_of_every_class_of_components() {
        let page = example_page().render().expect("the page");

        let shown: BTreeSet<_> =
            values_of(&page, "class").into_iter().flat_map(str::split_whitespace).collect();
        let missing: Vec<_> = classes_of(include_str!("assets/components.css"))
            .into_iter()
            .filter(|name| !name.starts_with("c-") && !WITHOUT_EXAMPLE.contains(name))
            .filter(|name| !shown.contains(name))
            .collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn style_guide_has_each_id_once() {
        let page = example_page().render().expect("the page");

        let ids = values_of(&page, "id");
        let unique: BTreeSet<_> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len(), "{ids:?}");
    }
}
