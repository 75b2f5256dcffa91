//! The overview page of a workspace.

use std::time::Duration;

use askama::Template;
use domain::first_steps::{FirstStep, FirstSteps};
use domain::health::{self, Health};
use domain::page::COUNT_MAX;
use domain::users;
use foundation::model::EventKind;

use super::analytics::{Comparison, Figure, Selection, TimeRange, build_charts, with_range};
use super::charts::BarChart;
use super::format::{format_count, format_grouped, format_latency, format_quantity};
use super::get_started::find_first_steps;
use super::layout::{Layout, Section};
use super::page_request::{PageRequest, WorkspaceRequest};
use super::{PageResult, redirect_to, render_page};

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    layout: Layout,
    name: String,
    id: String,
    role: &'static str,
    apis: String,
    keys: String,
    identities: String,
    health: Health,
    /// The round trips to Postgres and Redis, such as `, round trip 0.4 ms`. Empty if unknown.
    database_distance: String,
    redis_distance: String,
    /// The other regions: name, whether it is reachable, round trip.
    regions: Vec<(String, bool, String)>,
    /// The number of events that this server has dropped since it started, if any.
    dropped: Option<String>,
    /// Whether this server does not record events because its disk has too little free space.
    is_disk_short: bool,
    /// The number of undelivered events and the age of the oldest one, if it is late.
    delivery_lag: Option<(String, String)>,
    ranges: Vec<(&'static str, &'static str, bool)>,
    /// The analytics of the same time range.
    analytics_path: String,
    /// The charts; `None` if the rollups cannot be read.
    traffic: Option<TrafficPanel>,
    is_empty: bool,
    /// The first steps, unless all are completed, or it is not known which.
    first_steps: Option<FirstSteps>,
}

/// The key figures and charts of verifications.
struct TrafficPanel {
    figures: Vec<Figure>,
    /// What the figures are compared with.
    comparison: String,
    requests: BarChart,
    latency: BarChart,
}

#[derive(Template)]
#[template(path = "no_workspace.html")]
struct NoWorkspacePage {
    layout: Layout,
}

/// Redirects a user to their first enabled workspace.
pub async fn redirect_home(request: PageRequest) -> PageResult {
    let known = request.require_session()?;
    let memberships = users::list_memberships(&request.app.context, &known.user).await?;
    match memberships.into_iter().find(|membership| membership.workspace_enabled) {
        Some(membership) => redirect_to(&format!("/dashboard/{}", membership.workspace_id)),
        None => render_page(&NoWorkspacePage {
            layout: Layout::without_workspace(&request, "No workspace"),
        }),
    }
}

fn describe_distance(round_trip: Option<Duration>) -> String {
    let us = |round_trip: Duration| i64::try_from(round_trip.as_micros()).unwrap_or(i64::MAX);
    let text =
        round_trip.map(|round_trip| format!(", round trip {}", format_latency(us(round_trip))));
    text.unwrap_or_default()
}

pub async fn show(request: WorkspaceRequest) -> PageResult {
    let app = &request.page_request.app;
    let sizes = users::count_resources(&app.context, &request.caller).await?;
    let size_text = |number| format_count(number, COUNT_MAX);
    let query = &request.page_request.query;
    let range = TimeRange::named(query.text("range"), app.context.clock.now());
    let selection = Selection::all(EventKind::Verifications);
    let first_steps = find_first_steps(&request, &sizes).await;
    // The page must work during an outage of analytics: a user who investigates it needs the rest of the page.
    let traffic = match Comparison::load(&request, &selection, &range).await {
        Ok(Comparison { series, figures, text, .. }) => {
            let (mut requests, mut latency) = build_charts(&series, &range, selection.kind, "");
            for chart in [&mut requests, &mut latency] {
                chart.zoom_path = Some(request.workspace_path("/analytics"));
            }
            Some(TrafficPanel { figures, comparison: text, requests, latency })
        }
        Err(e) => {
            tracing::warn!(error = %e, "failed to read verification totals: {e}");
            None
        }
    };
    let dropped = health::count_dropped_events(&app.context);
    let health = health::check_health(&app.context).await;
    let regions = health::check_regions(&app.context).await.into_iter();
    let regions =
        regions.map(|it| (it.name, it.is_reachable, describe_distance(it.round_trip))).collect();
    render_page(&OverviewPage {
        is_disk_short: app.analytics.find_disk_shortage().is_some(),
        delivery_lag: health::find_delivery_lag(&app.context).map(|lag| {
            let age = format_quantity(lag.age_minutes, i64::MAX, "minute");
            (format_grouped(lag.event_count), age)
        }),
        dropped: (dropped > 0).then(|| format_count(dropped, i64::MAX)),
        ranges: range.options(),
        analytics_path: with_range(&request.workspace_path("/analytics"), "", query),
        traffic,
        name: request.membership.workspace_name.clone(),
        id: request.membership.workspace_id.to_string(),
        role: request.membership.role.as_str(),
        apis: size_text(sizes.apis),
        keys: size_text(sizes.keys),
        identities: size_text(sizes.identities),
        database_distance: describe_distance(health.database_round_trip),
        redis_distance: describe_distance(health.redis_round_trip),
        health,
        regions,
        is_empty: sizes.apis == 0,
        first_steps: first_steps.filter(|steps| !steps.is_complete()),
        layout: Layout::for_workspace(&request, Section::Overview, "Overview")
            .await?
            .about(&request.membership.workspace_name),
    })
}
