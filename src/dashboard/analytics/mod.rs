//! The analytics page: charts of outcomes and latency over time, top keys and top identities.

mod range;
mod traffic;

use askama::Template;
use axum::Router;
use axum::routing::get;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId};
use foundation::model::EventKind;

use super::charts::Bars;
use super::format::{grouped, utc};
use super::layout::{Layout, Section};
use super::page_request::WorkspaceRequest;
use super::{Answer, page};
use crate::app::App;
use crate::domain::analytics::rollup_query::{self, Group, Order, RollupGrouping, RollupQuery};
use crate::domain::apis;
use crate::domain::page::Paging;
use crate::domain::ratelimits::namespaces;
pub use range::{DAY_MS, Range, day, shown};
use traffic::{OUTCOMES, outcome_name};
pub use traffic::{Told, charts};

/// The maximum number of APIs or namespaces in the select.
const OFFERED: usize = 100;
/// The number of top keys and top identities.
const MOST: usize = 10;

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/analytics", get(page_of))
}

#[derive(Template)]
#[template(path = "analytics/page.html")]
struct Page {
    shell: Layout,
    workspace: String,
    is_limits: bool,
    ranges: Vec<(&'static str, &'static str, bool)>,
    from: String,
    until: String,
    /// The APIs or namespaces: value, label, whether it is selected.
    offered: Vec<(String, String, bool)>,
    outcomes: Vec<(&'static str, &'static str, bool)>,
    filter: Filter,
    fault: Option<String>,
    figures: Vec<(&'static str, String)>,
    requests: Bars,
    latency: Option<Bars>,
    by_key: Vec<TopConsumer>,
    by_identity: Vec<TopConsumer>,
    /// The time of the oldest raw event; `None` if there are none or it cannot be read.
    raw_since: Option<String>,
}

/// The filter of verifications.
#[derive(Debug, Clone, Default)]
struct Filter {
    key: String,
    identity: String,
    tag: String,
    outcome: String,
}

impl Filter {
    /// Returns whether the filter needs rollups per key, because totals per API cannot answer it.
    fn is_fine(&self) -> bool {
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
    refused: String,
}

async fn page_of(request: WorkspaceRequest) -> Answer {
    let (app, query) = (&request.visit.app, &request.visit.query);
    let is_limits = query.text("of") == "limits";
    let kind = if is_limits { EventKind::Ratelimits } else { EventKind::Verifications };
    let (range, fault) = Range::read(query, app.clock.now());
    let field =
        |name: &str| if is_limits { String::new() } else { query.text(name).trim().to_owned() };
    let filter = Filter {
        key: field("key"),
        identity: field("identity"),
        tag: field("tag"),
        outcome: query.text("outcome").to_owned(),
    };
    let only = query.text("only").trim();
    let only = (!only.is_empty()).then_some(only);
    let series = match filter.is_fine() {
        true => {
            let question = RollupQuery { unit: Some(range.unit), ..question(&filter, &range) };
            Told::of_groups(of_workspace(&request, only, question).await?)
        }
        false => Told::of_totals(&request, kind, only, &range).await?,
    };
    let (requests, latency) = charts(&series, &range, kind, &filter.outcome);
    let (by_key, by_identity) = match is_limits {
        true => (Vec::new(), Vec::new()),
        false => top_consumers(&request, only, &filter, &range).await?,
    };
    page(&Page {
        workspace: request.membership.workspace_id.to_string(),
        is_limits,
        ranges: range.offered(),
        from: range.from_text.clone(),
        until: range.until_text.clone(),
        offered: offered(&request, is_limits, only).await?,
        outcomes: OUTCOMES
            .iter()
            .filter(|outcome| outcome.kind == kind)
            .map(|outcome| {
                (outcome.value, outcome_name(outcome.value), outcome.value == filter.outcome)
            })
            .collect(),
        figures: series.figures(kind),
        filter,
        fault,
        requests,
        latency,
        by_key,
        by_identity,
        raw_since: raw_since(app).await,
        shell: Layout::of(&request, Section::Analytics, "Analytics").await?,
    })
}

/// Returns the keys and the identities with the most verifications.
async fn top_consumers(
    request: &WorkspaceRequest,
    only: Option<&str>,
    filter: &Filter,
    range: &Range,
) -> Result<(Vec<TopConsumer>, Vec<TopConsumer>)> {
    let by = RollupGrouping { key: true, ..RollupGrouping::default() };
    let keys = most(request, only, filter, range, by).await?;
    let by_key = keys.into_iter().map(|group| {
        let path = request.path(&format!("/keys/{}", group.key_id));
        asker(group.key_id.clone(), path, &group)
    });
    let by = RollupGrouping { identity: true, ..RollupGrouping::default() };
    let identities = most(request, only, filter, range, by).await?;
    let identities = identities.into_iter().filter(|group| !group.identity_id.is_empty());
    let by_identity = identities.map(|group| {
        let path = request.path(&format!("/identities/{}", group.identity_id));
        asker(group.external_id.clone(), path, &group)
    });
    Ok((by_key.collect(), by_identity.collect()))
}

async fn raw_since(app: &App) -> Option<String> {
    match app.events.raw_since().await {
        Ok(since) => since.map(utc),
        Err(e) => {
            tracing::warn!(error = %e, "failed to read the time of the oldest event: {e}");
            None
        }
    }
}

fn question(filter: &Filter, range: &Range) -> RollupQuery {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    RollupQuery {
        external_id: given(&filter.identity),
        keys: given(&filter.key).map(KeyId::from).into_iter().collect(),
        tags: given(&filter.tag).into_iter().collect(),
        from: range.from,
        to: range.until.plus_ms(-1),
        grain: range.grain(),
        ..RollupQuery::default()
    }
}

async fn of_workspace(
    request: &WorkspaceRequest,
    only: Option<&str>,
    question: RollupQuery,
) -> Result<Vec<Group>> {
    let api = only.map(ApiId::from);
    rollup_query::of_workspace(&request.visit.app, &request.caller, api.as_ref(), question).await
}

async fn most(
    request: &WorkspaceRequest,
    only: Option<&str>,
    filter: &Filter,
    range: &Range,
    by: RollupGrouping,
) -> Result<Vec<Group>> {
    let question = RollupQuery {
        by,
        order: Some(Order::Total),
        descending: true,
        limit: Some(MOST),
        ..question(filter, range)
    };
    of_workspace(request, only, question).await
}

fn asker(id: String, path: String, group: &Group) -> TopConsumer {
    let counts = &group.counts;
    TopConsumer {
        id,
        path,
        total: grouped(counts.total),
        refused: grouped(counts.total - counts.valid),
    }
}

async fn offered(
    request: &WorkspaceRequest,
    is_limits: bool,
    only: Option<&str>,
) -> Result<Vec<(String, String, bool)>> {
    let (app, caller) = (&request.visit.app, &request.caller);
    let paging = Paging { limit: OFFERED, ..Paging::default() };
    let named: Vec<_> = match is_limits {
        true => {
            let page = namespaces::page(app, caller, &paging).await?;
            page.items.into_iter().map(|found| (found.id.to_string(), found.name)).collect()
        }
        false => {
            let page = apis::page(app, caller, &paging).await?;
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
