//! The first page of a workspace.

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
    /// Events that this server dropped since its start.
    dropped: Option<String>,
    /// Whether this server leaves events out for want of room on its disk.
    is_disk_short: bool,
    late: Option<DeliveryLag>,
    ranges: Vec<(&'static str, &'static str, bool)>,
    /// Absent: it cannot be read now.
    traffic: Option<Traffic>,
    is_empty: bool,
    may_create: bool,
    example: String,
}

/// What came of verifications.
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

/// Where somebody belongs who names no workspace.
pub async fn home(visit: PageRequest) -> Answer {
    let known = visit.signed_in()?;
    let memberships = users::memberships(&visit.app, &known.person).await?;
    match memberships.into_iter().find(|membership| membership.workspace_enabled) {
        Some(membership) => redirect_to(&format!("/dashboard/{}", membership.workspace_id)),
        None => page(&Nowhere { shell: Layout::bare(&visit, "No workspace") }),
    }
}

pub async fn page_of(asked: WorkspaceRequest) -> Answer {
    let app = &asked.visit.app;
    let sizes = users::sizes(app, &asked.caller).await?;
    let told = |number| count(number, SIZE_MAX);
    let range = Range::last(asked.visit.query.text("range"), app.clock.now());
    let kind = EventKind::Verifications;
    // Who looks here because something is wrong must see what is not.
    let traffic = match Told::of_totals(&asked, kind, None, &range).await {
        Ok(told) => {
            let (requests, latency) = charts(&told, &range, kind, "");
            Some(Traffic { figures: told.figures(kind), requests, latency })
        }
        Err(e) => {
            tracing::warn!(error = %e, "cannot read what verifications came to: {e}");
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
        name: asked.membership.workspace_name.clone(),
        id: asked.membership.workspace_id.to_string(),
        role: asked.membership.role.as_str(),
        apis: told(sizes.apis),
        keys: told(sizes.keys),
        identities: told(sizes.identities),
        health: health::health(app).await,
        is_empty: sizes.apis == 0,
        may_create: may(&asked, Action::CreateRootKey),
        example: curl(&asked.visit.base_url, "apis.createApi", "{\"name\":\"my first API\"}"),
        shell: Layout::of(&asked, Section::Overview, "Overview").await?,
    })
}
