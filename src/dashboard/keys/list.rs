//! The list of keys, and the lookup of a full key.

use askama::Template;
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::{ApiId, KeyId};

use super::super::failure::Failure;
use super::super::format::TimeLabel;
use super::super::layout::{Layout, Section, may};
use super::super::page_request::WorkspaceRequest;
use super::super::pagination::Pages;
use super::super::{Answer, page, redirect_to, refused_page};
use super::{Choice, May, choices, path, spoken};
use crate::domain::keys::details::{self, KeyStatus};
use crate::domain::keys::whoami;
use crate::domain::page::Paging;
use crate::domain::permission::Action;

/// The number of keys per page.
const PAGE: usize = 25;

#[derive(Template)]
#[template(path = "keys/list.html")]
struct List<'a> {
    shell: Layout,
    workspace: String,
    rows: Vec<Row>,
    /// Whether the page has fewer rows than a full page.
    is_short: bool,
    search: &'a str,
    api: &'a str,
    apis: Vec<Choice>,
    states: Vec<Choice>,
    is_searched: bool,
    pages: Pages,
    may: May,
    /// Whether a full key was looked up that does not belong to this workspace.
    is_unknown: bool,
}

struct Row {
    id: KeyId,
    name: String,
    start: String,
    api_id: ApiId,
    api_name: String,
    state: &'static str,
    is_good: bool,
    external_id: String,
    created: TimeLabel,
    used: Option<TimeLabel>,
}

impl Row {
    fn new(row: details::KeyListItem, now: Timestamp) -> Self {
        let key = row.stored.key;
        Self {
            name: key.name.unwrap_or_else(|| "Unnamed".into()),
            id: key.id,
            start: key.start,
            api_id: key.api_id,
            api_name: row.api_name,
            state: spoken(row.state),
            is_good: row.state == KeyStatus::Active,
            external_id: key.owner_id.unwrap_or_default(),
            created: TimeLabel::new(key.created_at, now),
            used: row.stored.last_used_at.map(|at| TimeLabel::new(at, now)),
        }
    }
}

async fn listed(request: &WorkspaceRequest, is_unknown: bool) -> Result<List<'_>, Failure> {
    let app = &request.visit.app;
    let query = &request.visit.query;
    let (api, search) = (query.text("api"), query.text("q"));
    let state = KeyStatus::named(query.text("state"));
    let paging =
        Paging { from: query.text("from").to_owned(), limit: PAGE, search: search.to_owned() };
    let of = (!api.is_empty()).then(|| ApiId::from(api));
    let found = details::page(app, &request.caller, of.as_ref(), state, &paging).await?;
    let now = app.clock.now();
    let choice = |known: KeyStatus| Choice {
        value: known.as_str().to_owned(),
        label: spoken(known).to_owned(),
        is_chosen: state == Some(known),
    };
    Ok(List {
        shell: Layout::of(request, Section::Keys, "Keys").await?,
        workspace: request.membership.workspace_id.to_string(),
        is_short: found.items.len() < PAGE,
        rows: found.items.into_iter().map(|row| Row::new(row, now)).collect(),
        search,
        api,
        apis: choices(request, api).await?,
        states: KeyStatus::ALL.map(choice).into_iter().collect(),
        is_searched: !search.is_empty() || !api.is_empty() || state.is_some(),
        pages: Pages::new(request, &request.path("/keys"), found.next.as_deref()),
        may: May {
            create: may(request, Action::CreateKey),
            update: may(request, Action::UpdateKey),
            delete: may(request, Action::DeleteKey),
        },
        is_unknown,
    })
}

pub async fn list(request: WorkspaceRequest) -> Answer {
    page(&listed(&request, false).await?)
}

/// Looks up a full key. The key arrives in a POST form and must not leak: neither into the URL of the next page nor
/// into this page.
pub async fn find(request: WorkspaceRequest) -> Answer {
    let key = request.visit.form.text("key").trim();
    match whoami(&request.visit.app, &request.caller, key).await {
        Ok(found) => redirect_to(&path(&request, &found.view.stored().key.id, "")),
        Err(Error::NotFound(_)) => refused_page(&listed(&request, true).await?),
        Err(error) => Err(error.into()),
    }
}
