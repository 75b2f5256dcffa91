//! The first page of a workspace.

use askama::Template;

use super::shell::{Section, Shell, may};
use super::visit::{InWorkspace, Visit};
use super::words::{count, curl};
use super::{Answer, page, see};
use crate::domain::health::{self, Health};
use crate::domain::people::{self, SIZE_MAX};
use crate::domain::permission::Action;

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
    is_empty: bool,
    may_create: bool,
    example: String,
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
    page(&Page {
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
