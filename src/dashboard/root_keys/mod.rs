//! The pages of root keys: list, details, create, rotate and revoke.

mod picker;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::KeyId;
use picker::Picker;

use super::failure::Failure;
use super::form::{FormErrors, split_form_errors};
use super::format::{TimeLabel, curl, humanize};
use super::layout::{Layout, Section, may};
use super::page_request::WorkspaceRequest;
use super::pagination::Pages;
use super::{Answer, page, redirect_to, refused_page};
use crate::domain::page::Paging;
use crate::domain::permission::{self, Action};
use crate::domain::root_keys::{self, NewRootKey, Stored};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/root-keys", get(list).post(create))
        .route("/dashboard/{workspace}/root-keys/new", get(new))
        .route("/dashboard/{workspace}/root-keys/{key}", get(show))
        .route("/dashboard/{workspace}/root-keys/{key}/rotate", get(ask_rotate).post(rotate))
        .route("/dashboard/{workspace}/root-keys/{key}/revoke", get(ask_revoke).post(revoke))
}

/// The number of root keys per page.
const PAGE: usize = 25;
const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
/// The options for how long the replaced root key stays valid.
const GRACES: [(i64, &str); 5] = [
    (0, "Immediately"),
    (15 * MINUTE_MS, "After 15 minutes"),
    (HOUR_MS, "After 1 hour"),
    (6 * HOUR_MS, "After 6 hours"),
    (24 * HOUR_MS, "After 24 hours"),
];

#[derive(Template)]
#[template(path = "root_keys/list.html")]
struct List<'a> {
    shell: Layout,
    workspace: String,
    rows: Vec<Row>,
    search: &'a str,
    shows_all: bool,
    pages: Pages,
    may_create: bool,
}

#[derive(Template)]
#[template(path = "root_keys/show.html")]
struct Show {
    shell: Layout,
    workspace: String,
    key: Row,
    groups: Vec<Granted>,
    may_revoke: bool,
    may_rotate: bool,
}

#[derive(Template)]
#[template(path = "root_keys/new.html")]
struct New {
    shell: Layout,
    workspace: String,
    picker: Picker,
    faults: FormErrors,
}

#[derive(Template)]
#[template(path = "root_keys/created.html")]
struct Made {
    shell: Layout,
    workspace: String,
    id: KeyId,
    name: String,
    secret: String,
    example: String,
    /// When the replaced root key expires.
    old_ends: Option<TimeLabel>,
}

#[derive(Template)]
#[template(path = "root_keys/revoke.html")]
struct AskRevoke {
    shell: Layout,
    workspace: String,
    key: Row,
}

#[derive(Template)]
#[template(path = "root_keys/rotate.html")]
struct AskRotate {
    shell: Layout,
    workspace: String,
    key: Row,
    graces: [(i64, &'static str); 5],
}

/// A root key as displayed.
struct Row {
    id: KeyId,
    name: String,
    start: String,
    permissions: usize,
    state: State,
    created: TimeLabel,
    used: Option<TimeLabel>,
    expires: Option<TimeLabel>,
}

/// The status of a root key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    Expired,
    Revoked,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Expired => "Expired",
            Self::Revoked => "Revoked",
        }
    }
}

/// The permissions on one resource, or on all resources of a type.
struct Granted {
    title: String,
    actions: Vec<String>,
}

impl Row {
    fn new(stored: Stored, now: Timestamp) -> Self {
        let key = stored.key;
        let is_expired = key.expires_at.is_some_and(|expires| expires < now);
        let state = match (key.revoked_at, is_expired) {
            (Some(_), _) => State::Revoked,
            (None, true) => State::Expired,
            (None, false) => State::Active,
        };
        Self {
            id: key.id,
            name: key.name.unwrap_or_else(|| "Unnamed".into()),
            start: key.start,
            permissions: key.permissions.len(),
            state,
            created: TimeLabel::new(key.created_at, now),
            used: stored.last_used_at.map(|at| TimeLabel::new(at, now)),
            expires: key.expires_at.map(|at| TimeLabel::new(at, now)),
        }
    }

    fn is_active(&self) -> bool {
        self.state == State::Active
    }
}

async fn list(request: WorkspaceRequest) -> Answer {
    let app = &request.visit.app;
    let query = &request.visit.query;
    let shows_all = query.text("show") == "all";
    let paging = Paging {
        from: query.text("from").to_owned(),
        limit: PAGE,
        search: query.text("q").to_owned(),
    };
    let found = root_keys::page(app, &request.caller, !shows_all, &paging).await?;
    let now = app.clock.now();
    page(&List {
        shell: Layout::of(&request, Section::RootKeys, "Root keys").await?,
        workspace: request.membership.workspace_id.to_string(),
        rows: found.items.into_iter().map(|stored| Row::new(stored, now)).collect(),
        search: query.text("q"),
        shows_all,
        pages: Pages::new(&request, &request.path("/root-keys"), found.next.as_deref()),
        may_create: may(&request, Action::CreateRootKey),
    })
}

async fn found(request: &WorkspaceRequest, id: String) -> Result<Stored, Error> {
    root_keys::get(&request.visit.app, &request.caller, &KeyId::from(id)).await
}

async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let stored = found(&request, id).await?;
    let groups = granted(&stored.key.permissions);
    let key = Row::new(stored, request.visit.app.clock.now());
    page(&Show {
        shell: Layout::of(&request, Section::RootKeys, "Root key").await?,
        workspace: request.membership.workspace_id.to_string(),
        groups,
        may_revoke: key.state != State::Revoked && may(&request, Action::RevokeRootKey),
        may_rotate: key.is_active()
            && may(&request, Action::RevokeRootKey)
            && may(&request, Action::CreateRootKey),
        key,
    })
}

/// Groups permissions by the resource on which they are granted, in the order of the table of actions.
fn granted(tuples: &[String]) -> Vec<Granted> {
    let mut groups: Vec<Granted> = Vec::new();
    for tuple in tuples {
        let Ok((action, id)) = permission::parse(tuple) else { continue };
        let title = match id {
            "*" => format!("All {}", picker::plural(action.resource())),
            id => format!("Only {id}"),
        };
        let label = humanize(action.action());
        match groups.iter_mut().find(|group| group.title == title) {
            Some(group) => group.actions.push(label),
            None => groups.push(Granted { title, actions: vec![label] }),
        }
    }
    groups
}

async fn picking(
    request: &WorkspaceRequest,
    picker: Picker,
    faults: FormErrors,
) -> Result<New, Failure> {
    Ok(New {
        shell: Layout::of(request, Section::RootKeys, "New root key").await?,
        workspace: request.membership.workspace_id.to_string(),
        picker,
        faults,
    })
}

async fn new(request: WorkspaceRequest) -> Answer {
    request.caller.require(Action::CreateRootKey)?;
    let picker = Picker::of(&request, &request.visit.query).await?;
    page(&picking(&request, picker, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> Answer {
    let app = &request.visit.app;
    let form = &request.visit.form;
    let name = form.text("name").trim();
    let new = NewRootKey {
        name: (!name.is_empty()).then(|| name.to_owned()),
        permissions: picker::chosen(form),
        expires_at: picker::lasts_ms(form).map(|ms| app.clock.now().plus_ms(ms)),
    };
    match split_form_errors(root_keys::issue(app, &request.caller, new).await)? {
        Ok((key, secret)) => page(&Made {
            shell: Layout::of(&request, Section::RootKeys, "Your new root key").await?,
            workspace: request.membership.workspace_id.to_string(),
            id: key.id,
            name: key.name.unwrap_or_default(),
            secret: secret.expose().to_owned(),
            example: example(&request),
            old_ends: None,
        }),
        Err(faults) => {
            let picker = Picker::of(&request, form).await?;
            refused_page(&picking(&request, picker, faults).await?)
        }
    }
}

fn example(request: &WorkspaceRequest) -> String {
    curl(&request.visit.base_url, "keys.verifyKey", "{\"key\":\"a key\"}")
}

async fn ask_revoke(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require(Action::RevokeRootKey)?;
    let key = Row::new(found(&request, id).await?, request.visit.app.clock.now());
    page(&AskRevoke {
        shell: Layout::of(&request, Section::RootKeys, "Revoke root key").await?,
        workspace: request.membership.workspace_id.to_string(),
        key,
    })
}

async fn revoke(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    root_keys::end(&request.visit.app, &request.caller, &KeyId::from(id)).await?;
    redirect_to(&request.path("/root-keys?notice=revoked"))
}

async fn ask_rotate(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require(Action::CreateRootKey)?;
    request.caller.require(Action::RevokeRootKey)?;
    let key = Row::new(found(&request, id).await?, request.visit.app.clock.now());
    page(&AskRotate {
        shell: Layout::of(&request, Section::RootKeys, "Rotate root key").await?,
        workspace: request.membership.workspace_id.to_string(),
        key,
        graces: GRACES,
    })
}

async fn rotate(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let app = &request.visit.app;
    let grace = request.visit.form.text("grace").parse().ok();
    let grace = grace.filter(|ms| GRACES.iter().any(|(known, _)| known == ms));
    let grace =
        grace.ok_or_else(|| Error::invalid("grace", "select when the old root key expires"))?;
    let rotated = root_keys::rotate(app, &request.caller, &KeyId::from(id), grace).await?;
    page(&Made {
        shell: Layout::of(&request, Section::RootKeys, "Your new root key").await?,
        workspace: request.membership.workspace_id.to_string(),
        id: rotated.key.id,
        name: rotated.key.name.unwrap_or_default(),
        secret: rotated.secret.expose().to_owned(),
        example: example(&request),
        old_ends: Some(TimeLabel::new(rotated.old_ends, app.clock.now())),
    })
}
