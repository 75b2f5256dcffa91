//! The analytics page: charts of outcomes and latency over time, their division, and top keys, identities and
//! identifiers.

mod breakdown;
mod comparison;
mod date_fields;
pub mod download;
mod figures;
mod identifiers;
mod live;
mod range;
mod region_filter;
mod selection;
mod top;
mod traffic;
mod usage;

use askama::Template;
use axum::Router;
use axum::routing::get;
use domain::analytics_access::minutes_retained_since;
use domain::apis;
use domain::app::App;
use domain::page::Paging;
use domain::ratelimits::namespaces;
use foundation::error::Result;
use foundation::model::{Api, Namespace};
use futures_util::FutureExt as _;
use futures_util::future::{OptionFuture, try_join};

use super::charts::BarChart;
use super::form::Form;
use super::format::format_utc;
use super::keys::APIS_MAX;
use super::layout::{Layout, Section};
use super::page_request::WorkspaceRequest;
use super::{PageResult, render_page};
use breakdown::Breakdown;
pub use comparison::Comparison;
pub use date_fields::{NO_DATES, REVERSED_DATES, parse_day, valid_date_or_empty};
pub use figures::Figure;
use identifiers::IdentifierList;
pub use identifiers::IdentifierSection;
use live::LiveToggle;
pub use range::{TimeRange, with_range};
pub use region_filter::RegionFilter;
pub use selection::Selection;
use top::{Ranking, TopConsumers, TopGroups, TopList};
pub use traffic::{OUTCOMES, build_charts};
pub use usage::UsageSection;

/// The maximum number of namespaces in a select. The page of a namespace links to the page for any other.
pub const NAMESPACE_OPTIONS_MAX: usize = 100;

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/analytics", get(show))
        .route("/dashboard/{workspace}/analytics.csv", get(download::download))
}

#[derive(Template)]
#[template(path = "analytics/page.html")]
struct AnalyticsPage {
    layout: Layout,
    workspace: String,
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
    error: Option<String>,
    /// Whether dates were entered that do not apply to the selected range.
    has_unused_dates: bool,
    /// `None`: the range does not include now.
    live: Option<LiveToggle>,
    figures: Vec<Figure>,
    /// What the figures are compared with.
    comparison: String,
    requests: BarChart,
    latency: BarChart,
    download_url: String,
    /// The requests by outcome, by API or namespace, and by region.
    breakdowns: Vec<Breakdown>,
    /// The keys, identities and tags with the most verifications.
    top_lists: Vec<TopList>,
    /// The column that they are sorted by, unless it is the default.
    sort: Option<&'static str>,
    /// The identifiers with the most limit checks.
    identifier_lists: Vec<IdentifierList>,
    /// The time of the oldest raw event; `None` if there are none or it cannot be read.
    raw_since: Option<String>,
}

async fn show(request: WorkspaceRequest) -> PageResult {
    let (app, query) = (&request.page_request.app, &request.page_request.query);
    let now = app.context.clock.now();
    let (range, fault) = TimeRange::from_form(query, now);
    let (selection, region_fault) = Selection::from_form(query);
    let range = range.with_minutes_since(minutes_retained_since(&app.analytics, selection.kind));
    let outcome = query.text("outcome");
    let (comparison, groups) = load_numbers(&request, &selection, &range).await?;
    let comparison = comparison.with_outcome(selection.kind, outcome);
    let (mut requests, mut latency) =
        build_charts(&comparison.series, &range, selection.kind, outcome);
    for chart in [&mut requests, &mut latency] {
        chart.zoom_path = Some(zoom_path(&request));
    }
    let download_url = |table: &str| {
        let mut fields = query.query_without(&["table", "live"]);
        fields.append_pair("table", table);
        request.workspace_path(&format!("/analytics.csv?{}", fields.finish()))
    };
    let breakdowns =
        breakdown::list(&request, &selection, &range, &comparison, &download_url).await?;
    let mut figures = comparison.figures;
    let (mut top_lists, mut identifier_lists) = (Vec::new(), Vec::new());
    if let Some(groups) = groups {
        let has_before = comparison.before.is_some();
        let TopConsumers { lists, active_keys } =
            top::list_consumers(&request, &selection, &range, groups, has_before, &download_url)
                .await?;
        figures.push(active_keys);
        top_lists = lists;
    } else {
        let namespace = selection.resource();
        let lists = identifiers::list_tables(&request, namespace, &range, &download_url).await?;
        identifier_lists = lists.into();
    }
    let path = request.workspace_path("/analytics");
    render_page(&AnalyticsPage {
        workspace: request.membership.workspace_id.to_string(),
        verifications_path: with_range(&path, "", query),
        limits_path: with_range(&path, "limits", query),
        ranges: range.options_with_custom(),
        resources: ResourceOptions::load(&request, &selection).await?,
        outcomes: OUTCOMES
            .iter()
            .filter(|shown| shown.is_selected(selection.kind, ""))
            .map(|shown| (shown.value, shown.label, shown.value == outcome))
            .collect(),
        regions: RegionFilter::new(&request, &selection, region_fault),
        selection,
        error: fault,
        live: LiveToggle::new(&request, &range, now),
        has_unused_dates: has_dates(query) && !range.is_custom(),
        from: range.from_text,
        until: range.until_text,
        figures,
        comparison: comparison.text,
        requests,
        latency,
        download_url: download_url("time"),
        breakdowns,
        top_lists,
        sort: Ranking::from_query(&request).field_value(),
        identifier_lists,
        raw_since: load_raw_since(app).await,
        layout: Layout::for_workspace(&request, Section::Analytics, "Analytics").await?,
    })
}

/// Loads the numbers of the charts and, at the same time, the keys, identities and tags with the most verifications. `None`: the
/// selection has limit checks.
async fn load_numbers(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
) -> Result<(Comparison, Option<TopGroups>)> {
    let load_groups = || Box::pin(TopGroups::load(request, selection, range));
    let groups = OptionFuture::from((!selection.is_limits()).then(load_groups));
    try_join(Comparison::load(request, selection, range), groups.map(Option::transpose)).await
}

fn has_dates(query: &Form) -> bool {
    !(query.text("from").trim().is_empty() && query.text("until").trim().is_empty())
}

/// Returns the path of this page with all its filters, but without a period.
fn zoom_path(request: &WorkspaceRequest) -> String {
    let others = ["range", "from", "until", "live", "notice"];
    let mut fields = request.page_request.query.query_without(&others);
    request.workspace_path(&format!("/analytics?{}", fields.finish()))
}

async fn load_raw_since(app: &App) -> Option<String> {
    match app.analytics.event_store().oldest_raw_event().await {
        Ok(since) => since.map(format_utc),
        Err(e) => {
            tracing::warn!(error = %e, "failed to read the time of the oldest event: {e}");
            None
        }
    }
}

/// The APIs or namespaces to choose from.
pub struct ResourceOptions {
    /// Value, label, whether it is selected.
    pub options: Vec<(String, String, bool)>,
    /// Whether more exist than are offered.
    pub has_more: bool,
}

impl ResourceOptions {
    /// Loads the first APIs or namespaces by name, and adds the selected one.
    pub async fn load(request: &WorkspaceRequest, selection: &Selection) -> Result<Self> {
        let (context, caller) = (&request.page_request.app.context, &request.caller);
        let (named, has_more): (Vec<(String, String)>, bool) = match selection.is_limits() {
            true => {
                let paging = Paging::first_by_name(NAMESPACE_OPTIONS_MAX);
                let found = namespaces::list_for_caller(context, caller, &paging).await?;
                let name = |namespace: Namespace| (namespace.id.to_string(), namespace.name);
                (found.items.into_iter().map(name).collect(), found.next_start.is_some())
            }
            false => {
                let paging = Paging::first_by_name(APIS_MAX);
                let found = apis::list_for_caller(context, caller, &paging).await?;
                let name = |api: Api| (api.id.to_string(), api.name);
                (found.items.into_iter().map(name).collect(), found.next_start.is_some())
            }
        };
        Ok(Self { options: list_options(named, selection.resource()), has_more })
    }
}

/// Returns the options of the select: value, label, whether it is selected.
fn list_options(named: Vec<(String, String)>, only: Option<&str>) -> Vec<(String, String, bool)> {
    let is_chosen = |id: &str| only == Some(id);
    let mut offered: Vec<_> = named
        .into_iter()
        .map(|(id, name)| {
            let is_chosen = is_chosen(&id);
            (id, name, is_chosen)
        })
        .collect();
    // An API or namespace beyond the first ones, or a deleted one, can be selected by a link.
    if let Some(id) = only.filter(|id| !offered.iter().any(|(known, ..)| known == id)) {
        offered.push((id.to_owned(), id.to_owned(), true));
    }
    offered
}
