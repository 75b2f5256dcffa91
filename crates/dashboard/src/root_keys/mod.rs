//! The pages of root keys: list, details, create, rotate and revoke.

mod created;
mod picker;
mod scope;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use domain::permission::{self, Action};
use domain::root_keys::{self, NAME_MAX, NewRootKey, StoredRootKey};
use foundation::clock::{HOUR_MS, MINUTE_MS, Timestamp};
use foundation::error::Error;
use foundation::id::KeyId;
use foundation::model::AllowedChars;
use futures_util::TryFutureExt as _;
use picker::RootKeyPicker;
use scope::{check_scope, granted_tuples};

use super::failure::Failure;
use super::field_reader::FieldReader;
use super::form::{Form, FormErrors, split_form_errors};
use super::format::{TimeLabel, humanize};
use super::layout::{Layout, Section, is_allowed};
use super::list_frame::ListFrame;
use super::one_time_form::{create_once, redirect_to_secret};
use super::page_request::WorkspaceRequest;
use super::pagination::paging_from_query;
use super::sort_link::{Direction, SortLink};
use super::status_badge::StatusBadge;
use super::{PageResult, redirect_to, render_invalid_page, render_page};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/root-keys", get(list).post(create))
        .route("/dashboard/{workspace}/root-keys/new", get(show_form))
        .route("/dashboard/{workspace}/root-keys/{key}", get(show))
        .route("/dashboard/{workspace}/root-keys/{key}/secret/{form}", get(created::show))
        .route("/dashboard/{workspace}/root-keys/{key}/rotate", get(show_rotate_form).post(rotate))
        .route("/dashboard/{workspace}/root-keys/{key}/revoke", get(confirm_revoke).post(revoke))
}

/// The options for how long the replaced root key stays valid.
const GRACE_OPTIONS: [(i64, &str); 5] = [
    (0, "Immediately"),
    (15 * MINUTE_MS, "After 15 minutes"),
    (HOUR_MS, "After 1 hour"),
    (6 * HOUR_MS, "After 6 hours"),
    (24 * HOUR_MS, "After 24 hours"),
];

/// The number of APIs and namespaces that the page of a root key names. Others are shown by their ids.
const NAMES_MAX: usize = 40;

#[derive(Template)]
#[template(path = "root_keys/list.html")]
struct RootKeyListPage {
    layout: Layout,
    list: ListFrame,
    rows: Vec<RootKeyTableRow>,
    shows_all: bool,
    may_revoke: bool,
    may_rotate: bool,
}

#[derive(Template)]
#[template(path = "root_keys/show.html")]
struct RootKeyPage {
    layout: Layout,
    workspace: String,
    key: RootKeyTableRow,
    groups: Vec<GrantGroup>,
    may_revoke: bool,
    may_rotate: bool,
}

#[derive(Template)]
#[template(path = "root_keys/new.html")]
struct NewRootKeyPage {
    layout: Layout,
    workspace: String,
    picker: RootKeyPicker,
    errors: FormErrors,
}

#[derive(Template)]
#[template(path = "root_keys/revoke.html")]
struct RevokeRootKeyPage {
    layout: Layout,
    workspace: String,
    key: RootKeyTableRow,
}

#[derive(Template)]
#[template(path = "root_keys/rotate.html")]
struct RotateRootKeyPage {
    layout: Layout,
    workspace: String,
    key: RootKeyTableRow,
    graces: [(i64, &'static str); 5],
}

/// A root key as displayed.
struct RootKeyTableRow {
    id: KeyId,
    name: String,
    start: String,
    permissions: usize,
    state: RootKeyStatus,
    created: TimeLabel,
    last_used: Option<TimeLabel>,
    expires: Option<TimeLabel>,
}

/// Returns what a page calls a root key: its name, if it has one.
pub fn root_key_title(name: Option<String>) -> String {
    name.unwrap_or_else(|| "Unnamed root key".to_owned())
}

/// The status of a root key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RootKeyStatus {
    Active,
    Expired,
    Revoked,
}

impl RootKeyStatus {
    fn badge(self) -> StatusBadge {
        match self {
            Self::Active => StatusBadge::good("Active"),
            Self::Expired => StatusBadge::bad("Expired"),
            Self::Revoked => StatusBadge::neutral("Revoked"),
        }
    }
}

/// The permissions on one resource, or on all resources of a type.
struct GrantGroup {
    title: String,
    resource: &'static str,
    /// The id of the resource; empty for all resources of a type.
    id: String,
    actions: Vec<String>,
}

impl RootKeyTableRow {
    fn new(stored: StoredRootKey, now: Timestamp) -> Self {
        let key = stored.key;
        let is_expired = key.expires_at.is_some_and(|expires| expires < now);
        let state = match (key.revoked_at, is_expired) {
            (Some(_), _) => RootKeyStatus::Revoked,
            (None, true) => RootKeyStatus::Expired,
            (None, false) => RootKeyStatus::Active,
        };
        Self {
            id: key.id,
            name: root_key_title(key.name),
            start: key.start,
            permissions: key.permissions.len(),
            state,
            created: TimeLabel::new(key.created_at, now),
            last_used: stored.last_used_at.map(|at| TimeLabel::new(at, now)),
            expires: key.expires_at.map(|at| TimeLabel::new(at, now)),
        }
    }

    fn is_active(&self) -> bool {
        self.state == RootKeyStatus::Active
    }

    fn is_revoked(&self) -> bool {
        self.state == RootKeyStatus::Revoked
    }
}

async fn list(request: WorkspaceRequest) -> PageResult {
    let app = &request.page_request.app;
    let shows_all = request.page_request.query.text("show") == "all";
    let paging = paging_from_query(&request);
    let path = request.workspace_path("/root-keys");
    let sort = SortLink::new(&request, &path, Direction::Descending);
    let (context, caller, order) = (&app.context, &request.caller, sort.key_order());
    let found = root_keys::list_for_caller(context, caller, !shows_all, order, &paging).await?;
    let now = app.context.clock.now();
    let list = ListFrame::new(&request, "/root-keys", found.next_start.as_deref());
    render_page(&RootKeyListPage {
        layout: Layout::for_workspace(&request, Section::RootKeys, "Root keys").await?,
        list: list.with_sort(sort).with_create_form(
            &request,
            "/root-keys/new",
            Action::CreateRootKey,
        ),
        rows: found.items.into_iter().map(|stored| RootKeyTableRow::new(stored, now)).collect(),
        shows_all,
        may_revoke: is_allowed(&request, Action::RevokeRootKey),
        may_rotate: may_rotate(&request),
    })
}

fn may_rotate(request: &WorkspaceRequest) -> bool {
    is_allowed(request, Action::RevokeRootKey) && is_allowed(request, Action::CreateRootKey)
}

async fn load(request: &WorkspaceRequest, id: String) -> Result<StoredRootKey, Error> {
    root_keys::get(&request.page_request.app.context, &request.caller, &KeyId::from(id)).await
}

async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let stored = load(&request, id).await?;
    let mut groups = group_permissions(&stored.key.permissions);
    name_resources(&request, &mut groups).await?;
    let key = RootKeyTableRow::new(stored, request.page_request.app.context.clock.now());
    render_page(&RootKeyPage {
        layout: Layout::for_workspace(&request, Section::RootKeys, "Root keys")
            .await?
            .about(&key.name),
        workspace: request.membership.workspace_id.to_string(),
        groups,
        may_revoke: !key.is_revoked() && is_allowed(&request, Action::RevokeRootKey),
        may_rotate: key.is_active() && may_rotate(&request),
        key,
    })
}

/// Groups permissions by the resource on which they are granted, in the order of the table of actions.
fn group_permissions(tuples: &[String]) -> Vec<GrantGroup> {
    let mut groups: Vec<GrantGroup> = Vec::new();
    for tuple in tuples {
        let Ok((action, id)) = permission::parse_tuple(tuple) else { continue };
        let (title, id) = match id {
            "*" => (format!("All {}", picker::plural_label(action.resource())), String::new()),
            id => (format!("Only {id}"), id.to_owned()),
        };
        let label = humanize(action.action());
        match groups.iter_mut().find(|group| group.title == title) {
            Some(group) => group.actions.push(label),
            None => {
                let resource = action.resource();
                groups.push(GrantGroup { title, resource, id, actions: vec![label] });
            }
        }
    }
    groups
}

/// Titles groups of single APIs and namespaces by their names. A resource that does not exist keeps its id.
async fn name_resources(
    request: &WorkspaceRequest,
    groups: &mut [GrantGroup],
) -> Result<(), Error> {
    let is_named = |group: &&mut GrantGroup| {
        !group.id.is_empty() && ["api", "ratelimit"].contains(&group.resource)
    };
    let single = groups.iter_mut().filter(is_named);
    for group in single.take(NAMES_MAX) {
        if let Some(name) = picker::find_name(request, group.resource, &group.id).await? {
            group.title = format!("Only {name}");
        }
    }
    Ok(())
}

async fn build_form(
    request: &WorkspaceRequest,
    picker: RootKeyPicker,
    errors: FormErrors,
) -> Result<NewRootKeyPage, Failure> {
    Ok(NewRootKeyPage {
        layout: Layout::for_workspace(request, Section::RootKeys, "Create root key").await?,
        workspace: request.membership.workspace_id.to_string(),
        picker,
        errors,
    })
}

async fn show_form(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::CreateRootKey)?;
    let picker = RootKeyPicker::load(&request, &request.page_request.query).await?;
    render_page(&build_form(&request, picker, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> PageResult {
    match split_form_errors(create_once(&request, create_from_form(&request)).await)? {
        Ok(key) => redirect_to_secret(&request, &format!("/root-keys/{key}")),
        Err(errors) => {
            let picker = RootKeyPicker::load(&request, &request.page_request.form).await?;
            render_invalid_page(&build_form(&request, picker, errors).await?)
        }
    }
}

async fn create_from_form(request: &WorkspaceRequest) -> Result<KeyId, Error> {
    let context = &request.page_request.app.context;
    let new = read_root_key(&request.page_request.form, context.clock.now())?;
    root_keys::create(context, &request.caller, new).await.map(|(key, _)| key.id)
}

fn read_root_key(form: &Form, now: Timestamp) -> Result<NewRootKey, Error> {
    let mut fields = FieldReader::default();
    let name = form.text("name").trim();
    let name = fields.optional_text("name", name, NAME_MAX, AllowedChars::Printable);
    let permissions = granted_tuples(form);
    match check_scope(form, &permissions) {
        Err(message) => fields.add_error("scope", message),
        Ok(()) if permissions.is_empty() => {
            fields.add_error("permission", "Select at least one permission.");
        }
        Ok(()) => {}
    }
    let expires_at = picker::lifetime_ms(form).map(|ms| now.plus_ms(ms));
    fields.finish(NewRootKey { name, permissions, expires_at })
}

async fn confirm_revoke(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::RevokeRootKey)?;
    let key = RootKeyTableRow::new(
        load(&request, id).await?,
        request.page_request.app.context.clock.now(),
    );
    render_page(&RevokeRootKeyPage {
        layout: Layout::for_workspace(&request, Section::RootKeys, "Revoke root key")
            .await?
            .about(&key.name),
        workspace: request.membership.workspace_id.to_string(),
        key,
    })
}

async fn revoke(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    root_keys::revoke(&request.page_request.app.context, &request.caller, &KeyId::from(id)).await?;
    redirect_to(&request.workspace_path("/root-keys?notice=revoked"))
}

async fn show_rotate_form(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::CreateRootKey)?;
    request.caller.require(Action::RevokeRootKey)?;
    let key = RootKeyTableRow::new(
        load(&request, id).await?,
        request.page_request.app.context.clock.now(),
    );
    render_page(&RotateRootKeyPage {
        layout: Layout::for_workspace(&request, Section::RootKeys, "Rotate root key")
            .await?
            .about(&key.name),
        workspace: request.membership.workspace_id.to_string(),
        key,
        graces: GRACE_OPTIONS,
    })
}

async fn rotate(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let app = &request.page_request.app;
    let grace = request.page_request.form.text("grace").parse().ok();
    let grace = grace.filter(|ms| GRACE_OPTIONS.iter().any(|(known, _)| known == ms));
    let grace =
        grace.ok_or_else(|| Error::invalid("grace", "select when the old root key expires"))?;
    let old = KeyId::from(id);
    let rotation = root_keys::rotate(&app.context, &request.caller, &old, grace);
    let key = create_once(&request, rotation.map_ok(|rotated| rotated.key.id)).await?;
    redirect_to_secret(&request, &format!("/root-keys/{key}"))
}
