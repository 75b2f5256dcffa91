//! The analytics page: charts of outcomes and latency over time, top keys and top identities.

mod range;
mod traffic;

use askama::Template;
use axum::Router;
use axum::routing::get;
use domain::analytics_access::{self, RollupGroup, RollupGrouping, RollupOrder, RollupQuery};
use domain::apis;
use domain::app::App;
use domain::page::Paging;
use domain::ratelimits::namespaces;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId};
use foundation::model::EventKind;

use super::charts::BarChart;
use super::format::{format_grouped, format_utc};
use super::layout::{Layout, Section};
use super::page_request::WorkspaceRequest;
use super::{PageResult, render_page};
pub use range::{TimeRange, parse_day, valid_date_or_empty};
use traffic::OUTCOMES;
pub use traffic::{TrafficSeries, build_charts};

/// The maximum number of APIs or namespaces in the select.
const OPTIONS_MAX: usize = 100;
/// The number of top keys and top identities.
const TOP_MAX: usize = 10;

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/analytics", get(show))
}

#[derive(Template)]
#[template(path = "analytics/page.html")]
struct AnalyticsPage {
    layout: Layout,
    workspace: String,
    is_limits: bool,
    ranges: Vec<(&'static str, &'static str, bool)>,
    from: String,
    until: String,
    /// The APIs or namespaces: value, label, whether it is selected.
    options: Vec<(String, String, bool)>,
    outcomes: Vec<(&'static str, &'static str, bool)>,
    filter: AnalyticsFilter,
    error: Option<String>,
    figures: Vec<(&'static str, String)>,
    requests: BarChart,
    latency: Option<BarChart>,
    by_key: Vec<TopConsumer>,
    by_identity: Vec<TopConsumer>,
    /// The time of the oldest raw event; `None` if there are none or it cannot be read.
    raw_since: Option<String>,
}

/// The filter of verifications.
#[derive(Debug, Clone, Default)]
struct AnalyticsFilter {
    key: String,
    identity: String,
    tag: String,
    outcome: String,
}

impl AnalyticsFilter {
    /// Returns whether the filter needs rollups per key, because totals per API cannot answer it.
    fn has_key_filter(&self) -> bool {
        !(self.key.is_empty() && self.identity.is_empty() && self.tag.is_empty())
    }
}

/// A key or identity with the most requests.
struct TopConsumer {
    /// The key's id, or the identity's external id.
    id: String,
    /// The path of its page.
    path: String,
    total: String,
    rejected: String,
}

async fn show(request: WorkspaceRequest) -> PageResult {
    let (app, query) = (&request.page_request.app, &request.page_request.query);
    let is_limits = query.text("of") == "limits";
    let kind = if is_limits { EventKind::Ratelimits } else { EventKind::Verifications };
    let (range, fault) = TimeRange::from_form(query, app.context.clock.now());
    let field =
        |name: &str| if is_limits { String::new() } else { query.text(name).trim().to_owned() };
    let filter = AnalyticsFilter {
        key: field("key"),
        identity: field("identity"),
        tag: field("tag"),
        outcome: query.text("outcome").to_owned(),
    };
    let only = query.text("only").trim();
    let only = (!only.is_empty()).then_some(only);
    let series = match filter.has_key_filter() {
        true => {
            let question = RollupQuery { unit: Some(range.unit), ..build_query(&filter, &range) };
            TrafficSeries::from_groups(list_groups(&request, only, question).await?)
        }
        false => TrafficSeries::load_totals(&request, kind, only, &range).await?,
    };
    let (requests, latency) = build_charts(&series, &range, kind, &filter.outcome);
    let (by_key, by_identity) = match is_limits {
        true => (Vec::new(), Vec::new()),
        false => top_consumers(&request, only, &filter, &range).await?,
    };
    render_page(&AnalyticsPage {
        workspace: request.membership.workspace_id.to_string(),
        is_limits,
        ranges: range.options(),
        from: range.from_text.clone(),
        until: range.until_text.clone(),
        options: list_options(&request, is_limits, only).await?,
        outcomes: OUTCOMES
            .iter()
            .filter(|outcome| outcome.kind == kind)
            .map(|outcome| (outcome.value, outcome.label, outcome.value == filter.outcome))
            .collect(),
        figures: series.key_figures(kind),
        filter,
        error: fault,
        requests,
        latency,
        by_key,
        by_identity,
        raw_since: load_raw_since(app).await,
        layout: Layout::for_workspace(&request, Section::Analytics, "Analytics").await?,
    })
}

/// Returns the keys and the identities with the most verifications.
async fn top_consumers(
    request: &WorkspaceRequest,
    only: Option<&str>,
    filter: &AnalyticsFilter,
    range: &TimeRange,
) -> Result<(Vec<TopConsumer>, Vec<TopConsumer>)> {
    let by = RollupGrouping { is_by_key: true, ..RollupGrouping::default() };
    let keys = list_top(request, only, filter, range, by).await?;
    let by_key = keys.into_iter().map(|group| {
        let path = request.workspace_path(&format!("/keys/{}", group.key_id));
        build_top_consumer(group.key_id.clone(), path, &group)
    });
    let by = RollupGrouping { is_by_identity: true, ..RollupGrouping::default() };
    let identities = list_top(request, only, filter, range, by).await?;
    let identities = identities.into_iter().filter(|group| !group.identity_id.is_empty());
    let by_identity = identities.map(|group| {
        let path = request.workspace_path(&format!("/identities/{}", group.identity_id));
        build_top_consumer(group.external_id.clone(), path, &group)
    });
    Ok((by_key.collect(), by_identity.collect()))
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

fn build_query(filter: &AnalyticsFilter, range: &TimeRange) -> RollupQuery {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    RollupQuery {
        external_id: given(&filter.identity),
        key_ids: given(&filter.key).map(KeyId::from).into_iter().collect(),
        tags: given(&filter.tag).into_iter().collect(),
        from_time: range.from,
        to_time: range.until.plus_ms(-1),
        grain: range.rollup_unit(),
        ..RollupQuery::default()
    }
}

async fn list_groups(
    request: &WorkspaceRequest,
    only: Option<&str>,
    question: RollupQuery,
) -> Result<Vec<RollupGroup>> {
    let api = only.map(ApiId::from);
    let app = &request.page_request.app;
    analytics_access::list_rollups_by_workspace(
        &app.analytics,
        &request.caller,
        api.as_ref(),
        question,
    )
    .await
}

async fn list_top(
    request: &WorkspaceRequest,
    only: Option<&str>,
    filter: &AnalyticsFilter,
    range: &TimeRange,
    by: RollupGrouping,
) -> Result<Vec<RollupGroup>> {
    let question = RollupQuery {
        grouping: by,
        order: Some(RollupOrder::Total),
        is_descending: true,
        limit: Some(TOP_MAX),
        ..build_query(filter, range)
    };
    list_groups(request, only, question).await
}

fn build_top_consumer(id: String, path: String, group: &RollupGroup) -> TopConsumer {
    let counts = &group.counts;
    TopConsumer {
        id,
        path,
        total: format_grouped(counts.total),
        rejected: format_grouped(counts.total - counts.valid),
    }
}

async fn list_options(
    request: &WorkspaceRequest,
    is_limits: bool,
    only: Option<&str>,
) -> Result<Vec<(String, String, bool)>> {
    let (app, caller) = (&request.page_request.app, &request.caller);
    let paging = Paging { limit: OPTIONS_MAX, ..Paging::default() };
    let named: Vec<_> = match is_limits {
        true => {
            let page = namespaces::list_for_caller(&app.context, caller, &paging).await?;
            page.items.into_iter().map(|found| (found.id.to_string(), found.name)).collect()
        }
        false => {
            let page = apis::list_for_caller(&app.context, caller, &paging).await?;
            page.items.into_iter().map(|api| (api.id.to_string(), api.name)).collect()
        }
    };
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
    Ok(offered)
}
