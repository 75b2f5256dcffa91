//! The overview page of a workspace.

use askama::Template;
use foundation::model::EventKind;

use super::analytics::{Range, Told, charts};
use super::charts::Bars;
use super::format::{count, curl};
use super::layout::{Layout, Section, may};
use super::page_request::{PageRequest, WorkspaceRequest};
use super::{Answer, page, redirect_to};
use crate::domain::analytics::event_space;
use crate::domain::health::{self, DeliveryLag, Health};
use crate::domain::permission::Action;
use crate::domain::users::{self, SIZE_MAX};

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    shell: Layout,
    name: String,
    id: String,
    role: &'static str,
    apis: String,
    keys: String,
    identities: String,
    health: Health,
    /// The number of events that this server has dropped since it started, if any.
    dropped: Option<String>,
    /// Whether this server does not record events because its disk has too little free space.
    is_disk_short: bool,
    late: Option<DeliveryLag>,
    ranges: Vec<(&'static str, &'static str, bool)>,
    /// The charts; `None` if the rollups cannot be read.
    traffic: Option<Traffic>,
    is_empty: bool,
    may_create: bool,
    example: String,
}

/// The key figures and charts of verifications.
struct Traffic {
    figures: Vec<(&'static str, String)>,
    requests: Bars,
    latency: Option<Bars>,
}

#[derive(Template)]
#[template(path = "no_workspace.html")]
struct Nowhere {
    shell: Layout,
}

/// Redirects a user to their first enabled workspace.
pub async fn home(request: PageRequest) -> Answer {
    let known = request.signed_in()?;
    let memberships = users::memberships(&request.app, &known.person).await?;
    match memberships.into_iter().find(|membership| membership.workspace_enabled) {
        Some(membership) => redirect_to(&format!("/dashboard/{}", membership.workspace_id)),
        None => page(&Nowhere { shell: Layout::bare(&request, "No workspace") }),
    }
}

pub async fn page_of(request: WorkspaceRequest) -> Answer {
    let app = &request.visit.app;
    let sizes = users::sizes(app, &request.caller).await?;
    let size_text = |number| count(number, SIZE_MAX);
    let range = Range::last(request.visit.query.text("range"), app.clock.now());
    let kind = EventKind::Verifications;
    // The page must work during an outage of analytics: a user who investigates it needs the rest of the page.
    let traffic = match Told::of_totals(&request, kind, None, &range).await {
        Ok(series) => {
            let (requests, latency) = charts(&series, &range, kind, "");
            Some(Traffic { figures: series.figures(kind), requests, latency })
        }
        Err(e) => {
            tracing::warn!(error = %e, "failed to read verification totals: {e}");
            None
        }
    };
    let dropped = health::dropped_events(app);
    page(&Page {
        is_disk_short: event_space::shortage(&app.settings).is_some(),
        late: health::late_events(app),
        dropped: (dropped > 0).then(|| count(dropped, i64::MAX)),
        ranges: range.offered(),
        traffic,
        name: request.membership.workspace_name.clone(),
        id: request.membership.workspace_id.to_string(),
        role: request.membership.role.as_str(),
        apis: size_text(sizes.apis),
        keys: size_text(sizes.keys),
        identities: size_text(sizes.identities),
        health: health::health(app).await,
        is_empty: sizes.apis == 0,
        may_create: may(&request, Action::CreateRootKey),
        example: curl(&request.visit.base_url, "apis.createApi", "{\"name\":\"my first API\"}"),
        shell: Layout::of(&request, Section::Overview, "Overview").await?,
    })
}
