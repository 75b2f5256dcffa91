//! The page of the latest verifications: a log that can be filtered and refreshes itself.

use std::collections::HashMap;

use askama::Template;
use axum::Router;
use axum::routing::get;
use domain::analytics_access::{self, LogCursor, LogPage, LogQuery, RecentVerification};
use domain::apis;
use domain::keys::VerificationCode;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId};
use foundation::model::EventKind;

use super::analytics::{OUTCOMES, TimeRange, list_options, load_api_names};
use super::form::Form;
use super::format::{TimeLabel, format_latency, format_moment_to_ms, format_utc, outcome_label};
use super::key_names::KeyNames;
use super::layout::{Layout, Section};
use super::page_request::WorkspaceRequest;
use super::pagination::PageLinks;
use super::{PageResult, render_page};

/// The number of verifications of a page.
const ROWS_MAX: usize = 50;
/// How often a page refreshes itself, once in two seconds: for ten minutes.
const REFRESHES_MAX: u32 = 300;

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/logs", get(show))
}

#[derive(Template)]
#[template(path = "logs/list.html")]
struct LogsPage {
    layout: Layout,
    workspace: String,
    path: String,
    ranges: Vec<(&'static str, &'static str, bool)>,
    from: String,
    until: String,
    /// The options: value, label, whether it is selected.
    apis: Vec<(String, String, bool)>,
    outcomes: Vec<(&'static str, &'static str, bool)>,
    key: String,
    identity: String,
    error: Option<String>,
    rows: Vec<LogTableRow>,
    /// Earlier verifications were not compared with the filter yet.
    unread_before: Option<String>,
    pages: PageLinks,
    live: LiveRefresh,
}

/// The links that refresh the page or make it refresh itself.
struct LiveRefresh {
    /// The page that the browser loads next by itself; `None` if it does not.
    next_path: Option<String>,
    /// The page that refreshes itself; `None` on later pages of the log, which do not change.
    start_path: Option<String>,
    /// The same page, which does not refresh itself.
    stop_path: String,
}

struct LogTableRow {
    request_id: String,
    at: TimeLabel,
    outcome: String,
    is_valid: bool,
    key_id: String,
    key: String,
    api_id: String,
    api: String,
    identity: String,
    region: String,
    latency: String,
}

/// The names of the keys and APIs of the page.
struct RowNames {
    keys: KeyNames,
    apis: HashMap<ApiId, String>,
}

async fn show(request: WorkspaceRequest) -> PageResult {
    let (app, query) = (&request.page_request.app, &request.page_request.query);
    let (range, fault) = TimeRange::from_form(query, app.context.clock.now());
    let field = |name: &str| query.text(name).trim().to_owned();
    let log_query = LogQuery {
        api_id: field("only"),
        key_id: field("key"),
        external_id: field("identity"),
        outcome: field("outcome"),
        from_time: range.period.from,
        until_time: range.period.until,
        cursor: LogCursor::parse("before", query.text("before"))?,
        rows_max: ROWS_MAX,
    };
    let LogPage { verifications, next, unread_before } =
        analytics_access::list_log(&app.analytics, &request.caller, &log_query).await?;
    let selected_api = Some(&*log_query.api_id).filter(|id| !id.is_empty());
    let path = request.workspace_path("/logs");
    let next = next.map(|cursor| cursor.to_string());
    let names = RowNames::load(&request, &verifications).await?;
    render_page(&LogsPage {
        workspace: request.membership.workspace_id.to_string(),
        ranges: range.options_with_custom(),
        apis: list_options(load_api_names(&request).await?, selected_api),
        outcomes: OUTCOMES
            .iter()
            .filter(|shown| shown.is_selected(EventKind::Verifications, "") && shown.has_events())
            .map(|shown| (shown.value, shown.label, shown.value == log_query.outcome))
            .collect(),
        from: range.from_text,
        until: range.until_text,
        error: fault,
        rows: verifications.into_iter().map(|event| LogTableRow::new(event, &names)).collect(),
        unread_before: unread_before.map(format_utc),
        pages: PageLinks::with_cursor_field(&request, &path, "before", next.as_deref()),
        live: LiveRefresh::new(query, &path, log_query.cursor.is_none()),
        key: log_query.key_id,
        identity: log_query.external_id,
        path,
        layout: Layout::for_workspace(&request, Section::Logs, "Logs").await?,
    })
}

impl LiveRefresh {
    fn new(query: &Form, path: &str, is_first_page: bool) -> Self {
        let to = |live: Option<u32>| {
            let mut fields = query.query_without(&["live", "notice"]);
            if let Some(left) = live {
                fields.append_pair("live", &left.to_string());
            }
            format!("{path}?{}", fields.finish())
        };
        let left = query.text("live").parse().unwrap_or(0).min(REFRESHES_MAX);
        Self {
            next_path: (is_first_page && left > 0).then(|| to(Some(left - 1))),
            start_path: is_first_page.then(|| to(Some(REFRESHES_MAX))),
            stop_path: to(None),
        }
    }
}

impl RowNames {
    async fn load(request: &WorkspaceRequest, events: &[RecentVerification]) -> Result<Self> {
        let mut keys: Vec<KeyId> = events.iter().map(|event| event.key_id.clone()).collect();
        let mut ids: Vec<ApiId> = events.iter().map(|event| event.api_id.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        ids.sort_unstable();
        ids.dedup();
        let context = &request.page_request.app.context;
        Ok(Self {
            keys: KeyNames::load(request, keys).await?,
            apis: apis::load_names(context, &request.caller, &ids).await?,
        })
    }
}

impl LogTableRow {
    fn new(event: RecentVerification, names: &RowNames) -> Self {
        Self {
            at: exact_time(event.occurred_at),
            is_valid: event.outcome == VerificationCode::Valid.as_str(),
            outcome: outcome_label(event.outcome),
            key: names.keys.label(&event.key_id),
            key_id: event.key_id.to_string(),
            api: names.apis.get(&event.api_id).cloned().unwrap_or_else(|| event.api_id.to_string()),
            api_id: event.api_id.to_string(),
            identity: event.external_id.unwrap_or_default(),
            region: event.region,
            latency: format_latency(event.latency_us),
            request_id: event.request_id,
        }
    }
}

/// Labels a time by itself: relative times of neighboring rows are the same.
fn exact_time(at: Timestamp) -> TimeLabel {
    let exact = TimeLabel::new(at, at).exact;
    TimeLabel { exact, text: format_moment_to_ms(at) }
}
