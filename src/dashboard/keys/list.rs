//! The list of keys, and the search for a key that somebody has at hand.

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

/// How many keys a page lists.
const PAGE: usize = 25;

#[derive(Template)]
#[template(path = "keys/list.html")]
struct List<'a> {
    shell: Layout,
    workspace: String,
    rows: Vec<Row>,
    /// Whether the page has fewer than it could.
    is_short: bool,
    search: &'a str,
    api: &'a str,
    apis: Vec<Choice>,
    states: Vec<Choice>,
    is_searched: bool,
    pages: Pages,
    may: May,
    /// Whether a key was looked for that is none of this workspace.
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
            name: key.name.unwrap_or_else(|| "without a name".into()),
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

async fn listed(asked: &WorkspaceRequest, is_unknown: bool) -> Result<List<'_>, Failure> {
    let app = &asked.visit.app;
    let query = &asked.visit.query;
    let (api, search) = (query.text("api"), query.text("q"));
    let state = KeyStatus::named(query.text("state"));
    let paging =
        Paging { from: query.text("from").to_owned(), limit: PAGE, search: search.to_owned() };
    let of = (!api.is_empty()).then(|| ApiId::from(api));
    let found = details::page(app, &asked.caller, of.as_ref(), state, &paging).await?;
    let now = app.clock.now();
    let choice = |known: KeyStatus| Choice {
        value: known.as_str().to_owned(),
        label: spoken(known).to_owned(),
        is_chosen: state == Some(known),
    };
    Ok(List {
        shell: Layout::of(asked, Section::Keys, "Keys").await?,
        workspace: asked.membership.workspace_id.to_string(),
        is_short: found.items.len() < PAGE,
        rows: found.items.into_iter().map(|row| Row::new(row, now)).collect(),
        search,
        api,
        apis: choices(asked, api).await?,
        states: KeyStatus::ALL.map(choice).into_iter().collect(),
        is_searched: !search.is_empty() || !api.is_empty() || state.is_some(),
        pages: Pages::new(asked, &asked.path("/keys"), found.next.as_deref()),
        may: May {
            create: may(asked, Action::CreateKey),
            update: may(asked, Action::UpdateKey),
            delete: may(asked, Action::DeleteKey),
        },
        is_unknown,
    })
}

pub async fn list(asked: WorkspaceRequest) -> Answer {
    page(&listed(&asked, false).await?)
}

/// Finds a key by itself. It comes in a form, and goes nowhere from here: not into the address of the next page, nor
/// into this one.
pub async fn find(asked: WorkspaceRequest) -> Answer {
    let key = asked.visit.form.text("key").trim();
    match whoami(&asked.visit.app, &asked.caller, key).await {
        Ok(found) => redirect_to(&path(&asked, &found.view.stored().key.id, "")),
        Err(Error::NotFound(_)) => refused_page(&listed(&asked, true).await?),
        Err(error) => Err(error.into()),
    }
}
