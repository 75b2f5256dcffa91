//! The first page of a workspace.

use askama::Template;

use super::analytics::{Range, Told, charts};
use super::charts::Bars;
use super::shell::{Section, Shell, may};
use super::visit::{InWorkspace, Visit};
use super::words::{count, curl};
use super::{Answer, page, see};
use crate::domain::analytics::room;
use crate::domain::health::{self, Health, Late};
use crate::domain::people::{self, SIZE_MAX};
use crate::domain::permission::Action;
use crate::model::EventKind;

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    shell: Shell,
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
    late: Option<Late>,
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
#[template(path = "nowhere.html")]
struct Nowhere {
    shell: Shell,
}

/// Where somebody belongs who names no workspace.
pub async fn home(visit: Visit) -> Answer {
    let known = visit.signed_in()?;
    let memberships = people::memberships(&visit.app, &known.person).await?;
    match memberships.into_iter().find(|membership| membership.workspace_enabled) {
        Some(membership) => see(&format!("/dashboard/{}", membership.workspace_id)),
        None => page(&Nowhere { shell: Shell::bare(&visit, "No workspace") }),
    }
}

pub async fn page_of(asked: InWorkspace) -> Answer {
    let app = &asked.visit.app;
    let sizes = people::sizes(app, &asked.caller).await?;
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
        is_disk_short: room::shortage(&app.settings).is_some(),
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
        shell: Shell::of(&asked, Section::Overview, "Overview").await?,
    })
}
