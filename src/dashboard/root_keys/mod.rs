//! Root keys: what programs call Keyward with, made and ended by people.

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

/// How many root keys a page lists.
const PAGE: usize = 25;
const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
/// How long the old one of two root keys may be good still.
const GRACES: [(i64, &str); 5] = [
    (0, "At once"),
    (15 * MINUTE_MS, "After 15 minutes"),
    (HOUR_MS, "After an hour"),
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
    /// When the one that it replaces ends.
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

/// A root key as it is shown.
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

/// Whether a root key is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    Expired,
    Revoked,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// What is granted on one instance, or on all of a type.
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
            name: key.name.unwrap_or_else(|| "without a name".into()),
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

async fn list(asked: WorkspaceRequest) -> Answer {
    let app = &asked.visit.app;
    let query = &asked.visit.query;
    let shows_all = query.text("show") == "all";
    let paging = Paging {
        from: query.text("from").to_owned(),
        limit: PAGE,
        search: query.text("q").to_owned(),
    };
    let found = root_keys::page(app, &asked.caller, !shows_all, &paging).await?;
    let now = app.clock.now();
    page(&List {
        shell: Layout::of(&asked, Section::RootKeys, "Root keys").await?,
        workspace: asked.membership.workspace_id.to_string(),
        rows: found.items.into_iter().map(|stored| Row::new(stored, now)).collect(),
        search: query.text("q"),
        shows_all,
        pages: Pages::new(&asked, &asked.path("/root-keys"), found.next.as_deref()),
        may_create: may(&asked, Action::CreateRootKey),
    })
}

async fn found(asked: &WorkspaceRequest, id: String) -> Result<Stored, Error> {
    root_keys::get(&asked.visit.app, &asked.caller, &KeyId::from(id)).await
}

async fn show(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let stored = found(&asked, id).await?;
    let groups = granted(&stored.key.permissions);
    let key = Row::new(stored, asked.visit.app.clock.now());
    page(&Show {
        shell: Layout::of(&asked, Section::RootKeys, "Root key").await?,
        workspace: asked.membership.workspace_id.to_string(),
        groups,
        may_revoke: key.state != State::Revoked && may(&asked, Action::RevokeRootKey),
        may_rotate: key.is_active()
            && may(&asked, Action::RevokeRootKey)
            && may(&asked, Action::CreateRootKey),
        key,
    })
}

/// Permissions by what they are granted on, in the order of the table of actions.
fn granted(tuples: &[String]) -> Vec<Granted> {
    let mut groups: Vec<Granted> = Vec::new();
    for tuple in tuples {
        let Ok((action, id)) = permission::parse(tuple) else { continue };
        let title = match id {
            "*" => format!("All {}", picker::plural(action.resource())),
            id => format!("Only {id}"),
        };
        let spoken = humanize(action.action());
        match groups.iter_mut().find(|group| group.title == title) {
            Some(group) => group.actions.push(spoken),
            None => groups.push(Granted { title, actions: vec![spoken] }),
        }
    }
    groups
}

async fn picking(
    asked: &WorkspaceRequest,
    picker: Picker,
    faults: FormErrors,
) -> Result<New, Failure> {
    Ok(New {
        shell: Layout::of(asked, Section::RootKeys, "New root key").await?,
        workspace: asked.membership.workspace_id.to_string(),
        picker,
        faults,
    })
}

async fn new(asked: WorkspaceRequest) -> Answer {
    asked.caller.require(Action::CreateRootKey)?;
    let picker = Picker::of(&asked, &asked.visit.query).await?;
    page(&picking(&asked, picker, FormErrors::default()).await?)
}

async fn create(asked: WorkspaceRequest) -> Answer {
    let app = &asked.visit.app;
    let form = &asked.visit.form;
    let name = form.text("name").trim();
    let new = NewRootKey {
        name: (!name.is_empty()).then(|| name.to_owned()),
        permissions: picker::chosen(form),
        expires_at: picker::lasts_ms(form).map(|ms| app.clock.now().plus_ms(ms)),
    };
    match split_form_errors(root_keys::issue(app, &asked.caller, new).await)? {
        Ok((key, secret)) => page(&Made {
            shell: Layout::of(&asked, Section::RootKeys, "Your new root key").await?,
            workspace: asked.membership.workspace_id.to_string(),
            id: key.id,
            name: key.name.unwrap_or_default(),
            secret: secret.expose().to_owned(),
            example: example(&asked),
            old_ends: None,
        }),
        Err(faults) => {
            let picker = Picker::of(&asked, form).await?;
            refused_page(&picking(&asked, picker, faults).await?)
        }
    }
}

fn example(asked: &WorkspaceRequest) -> String {
    curl(&asked.visit.base_url, "keys.verifyKey", "{\"key\":\"a key\"}")
}

async fn ask_revoke(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::RevokeRootKey)?;
    let key = Row::new(found(&asked, id).await?, asked.visit.app.clock.now());
    page(&AskRevoke {
        shell: Layout::of(&asked, Section::RootKeys, "Revoke a root key").await?,
        workspace: asked.membership.workspace_id.to_string(),
        key,
    })
}

async fn revoke(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    root_keys::end(&asked.visit.app, &asked.caller, &KeyId::from(id)).await?;
    redirect_to(&asked.path("/root-keys?notice=revoked"))
}

async fn ask_rotate(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::CreateRootKey)?;
    asked.caller.require(Action::RevokeRootKey)?;
    let key = Row::new(found(&asked, id).await?, asked.visit.app.clock.now());
    page(&AskRotate {
        shell: Layout::of(&asked, Section::RootKeys, "Rotate a root key").await?,
        workspace: asked.membership.workspace_id.to_string(),
        key,
        graces: GRACES,
    })
}

async fn rotate(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let app = &asked.visit.app;
    let grace = asked.visit.form.text("grace").parse().ok();
    let grace = grace.filter(|ms| GRACES.iter().any(|(known, _)| known == ms));
    let grace =
        grace.ok_or_else(|| Error::invalid("grace", "choose when the old root key ends"))?;
    let rotated = root_keys::rotate(app, &asked.caller, &KeyId::from(id), grace).await?;
    page(&Made {
        shell: Layout::of(&asked, Section::RootKeys, "Your new root key").await?,
        workspace: asked.membership.workspace_id.to_string(),
        id: rotated.key.id,
        name: rotated.key.name.unwrap_or_default(),
        secret: rotated.secret.expose().to_owned(),
        example: example(&asked),
        old_ends: Some(TimeLabel::new(rotated.old_ends, app.clock.now())),
    })
}
