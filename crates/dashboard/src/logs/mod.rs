//! The page of the latest verifications or limit checks: a log that can be filtered and refreshes itself.

mod rows;

use askama::Template;
use axum::Router;
use axum::routing::get;
use domain::analytics_access::{
    CHECKS_MAX, LogCursor, LogPage, LogQuery, VerificationLogFilter, list_check_log,
    list_verification_log,
};
use foundation::error::Result;
use foundation::model::EventKind;

use super::analytics::{OUTCOMES, RegionFilter, ResourceOptions, Selection, TimeRange, with_range};
use super::form::Form;
use super::format::format_utc;
use super::layout::{Layout, Section};
use super::page_request::WorkspaceRequest;
use super::pagination::PageLinks;
use super::{PageResult, render_page};
use rows::{CheckTableRow, VerificationTableRow};

/// The number of verifications of a page.
const VERIFICATIONS_MAX: usize = 50;
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
    /// The links to this page for each kind of events, with the same time range.
    verifications_path: String,
    limits_path: String,
    ranges: Vec<(&'static str, &'static str, bool)>,
    from: String,
    until: String,
    resources: ResourceOptions,
    outcomes: Vec<(&'static str, &'static str, bool)>,
    regions: RegionFilter,
    selection: Selection,
    identifier: String,
    error: Option<String>,
    table: LogTable,
    /// Earlier events were not compared with the filter yet.
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

/// The events of a page.
enum LogTable {
    Verifications(Vec<VerificationTableRow>),
    Checks(Vec<CheckTableRow>),
}

/// A page of the log.
struct LogTablePage {
    table: LogTable,
    next: Option<LogCursor>,
    unread_before: Option<String>,
}

async fn show(request: WorkspaceRequest) -> PageResult {
    let (app, query) = (&request.page_request.app, &request.page_request.query);
    let (range, fault) = TimeRange::from_form(query, app.context.clock.now());
    let (selection, region_fault) = Selection::from_form(query);
    let field = |name: &str| query.text(name).trim().to_owned();
    let log_query = LogQuery {
        resource_id: selection.resource_id.clone(),
        outcome: field("outcome"),
        from_time: range.period.from,
        until_time: range.period.until,
        cursor: LogCursor::parse("before", query.text("before"))?,
        rows_max: if selection.is_limits() { CHECKS_MAX } else { VERIFICATIONS_MAX },
    };
    let identifier = field("identifier");
    let page = LogTablePage::load(&request, &selection, &log_query, &identifier).await?;
    let path = request.workspace_path("/logs");
    let next = page.next.map(|cursor| cursor.to_string());
    render_page(&LogsPage {
        workspace: request.membership.workspace_id.to_string(),
        verifications_path: with_range(&path, "", query),
        limits_path: with_range(&path, "limits", query),
        ranges: range.options_with_custom(),
        resources: ResourceOptions::load(&request, &selection).await?,
        outcomes: OUTCOMES
            .iter()
            .filter(|shown| shown.is_selected(selection.kind, "") && shown.has_events())
            .map(|shown| (shown.value, shown.label, shown.value == log_query.outcome))
            .collect(),
        from: range.from_text,
        until: range.until_text,
        error: fault,
        table: page.table,
        unread_before: page.unread_before,
        pages: PageLinks::with_cursor_field(&request, &path, "before", next.as_deref()),
        live: LiveRefresh::new(query, &path, log_query.cursor.is_none()),
        regions: RegionFilter::new(&request, &selection, region_fault),
        selection,
        identifier,
        path,
        layout: Layout::for_workspace(&request, Section::Logs, "Logs").await?,
    })
}

impl LogTablePage {
    async fn load(
        request: &WorkspaceRequest,
        selection: &Selection,
        query: &LogQuery,
        identifier: &str,
    ) -> Result<Self> {
        let (analytics, caller) = (&request.page_request.app.analytics, &request.caller);
        Ok(match selection.kind {
            EventKind::Verifications => {
                let verifications = VerificationLogFilter {
                    key_id: &selection.key,
                    external_id: &selection.identity,
                    region: &selection.region,
                };
                let page = list_verification_log(analytics, caller, query, &verifications).await?;
                let rows = VerificationTableRow::list(request, &page.events).await?;
                Self::new(LogTable::Verifications(rows), page)
            }
            EventKind::Ratelimits => {
                let page = list_check_log(analytics, caller, query, identifier).await?;
                let rows = CheckTableRow::list(request, &page.events).await?;
                Self::new(LogTable::Checks(rows), page)
            }
        })
    }

    fn new<Event>(table: LogTable, page: LogPage<Event>) -> Self {
        Self { table, next: page.next, unread_before: page.unread_before.map(format_utc) }
    }
}

impl LogTable {
    fn is_empty(&self) -> bool {
        match self {
            Self::Verifications(rows) => rows.is_empty(),
            Self::Checks(rows) => rows.is_empty(),
        }
    }

    /// Returns whether a verification was decided in a named region: with one region, the column would be empty.
    fn has_regions(&self) -> bool {
        match self {
            Self::Verifications(rows) => rows.iter().any(|row| !row.region.is_empty()),
            Self::Checks(_) => false,
        }
    }
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
