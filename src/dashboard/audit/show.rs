//! The page of an audit entry: changes, other entries of the same operation, later changes of its target, and undo.

use askama::Template;
use axum::extract::Path;
use foundation::error::Error;
use foundation::id::AuditId;
use foundation::model::MemberRole;
use serde_json::Value;

use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::format::{TimeLabel, utc};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{Answer, page, redirect_to, refused_page};
use super::{Row, labels, name, targets, who};
use crate::domain::audit::{self, AuditFilter, Fields, StoredEntry};
use crate::domain::undo;

/// Limits the number of later entries about the same target.
const LATER_MAX: i64 = 10;

#[derive(Template)]
#[template(path = "audit/show.html")]
struct Show {
    shell: Layout,
    list: String,
    path: String,
    what: String,
    who: String,
    actor: String,
    at: TimeLabel,
    exact: String,
    address: Option<String>,
    user_agent: Option<String>,
    event: String,
    id: String,
    targets: Vec<Target>,
    fields: Vec<Field>,
    /// Whether the entry has values from before the change.
    was: bool,
    /// Whether the entry has values from after the change.
    is: bool,
    together: Vec<Row>,
    later: Vec<Row>,
    undoes: Option<String>,
    undone_by: Option<String>,
    /// The effect of undoing the entry, or why it cannot be undone.
    promise: Result<&'static str, &'static str>,
    may_undo: bool,
    faults: FormErrors,
}

/// A target of the entry.
struct Target {
    kind: &'static str,
    name: String,
    id: String,
    /// The path of the target's page; `None` if that kind of target has no page.
    path: Option<String>,
    /// The path of the list of all entries about the target.
    entries: String,
}

/// A changed field.
struct Field {
    name: String,
    before: String,
    after: String,
}

pub async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    page(&shown(&request, &AuditId::from(id), FormErrors::default()).await?)
}

pub async fn undo(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let id = AuditId::from(id);
    match split_form_errors(undo::undo(&request.visit.app, &request.caller, &id).await)? {
        Ok(_) => redirect_to(&request.path(&format!("/audit/{id}?notice=undone"))),
        Err(faults) => refused_page(&shown(&request, &id, faults).await?),
    }
}

async fn shown(
    request: &WorkspaceRequest,
    id: &AuditId,
    faults: FormErrors,
) -> Result<Show, Failure> {
    let app = &request.visit.app;
    let (entry, act) = audit::get_with_group(app, &request.caller, id).await?;
    let now = app.clock.now();
    let row = |entry: &StoredEntry| Row::new(request, entry, now);
    let later = later(request, &entry, &act).await?;
    let fields = |snapshot: &Option<String>| snapshot.as_deref().map(audit::fields).transpose();
    let (before, after) = (fields(&entry.before)?, fields(&entry.after)?);
    let link = |id: &String| request.path(&format!("/audit/{id}"));
    Ok(Show {
        shell: Layout::of(request, Section::Audit, "Audit log entry").await?,
        list: request.path("/audit"),
        path: request.path(&format!("/audit/{id}")),
        what: labels::event(&entry.event).to_owned(),
        who: who(&entry),
        actor: match entry.actor_type.as_str() {
            "rootkey" => format!("root key {}", entry.actor_id),
            "user" => format!("user {}", entry.actor_id),
            _ => "command line or server".to_owned(),
        },
        at: TimeLabel::new(entry.at, now),
        exact: utc(entry.at),
        address: entry.remote_address.clone(),
        user_agent: entry.user_agent.clone(),
        targets: targets(&entry).iter().map(|value| target(request, &entry, value)).collect(),
        was: before.is_some(),
        is: after.is_some(),
        fields: changed(&before.unwrap_or_default(), &after.unwrap_or_default()),
        together: act.iter().filter(|other| other.id != entry.id).map(row).collect(),
        later: later.iter().map(row).collect(),
        undoes: entry.undoes.as_ref().map(link),
        undone_by: entry.undone_by.as_ref().map(link),
        promise: undo::plan_undo(&entry).map(|action| labels::undo_description(&action)),
        may_undo: request.membership.role != MemberRole::Viewer,
        event: entry.event,
        id: entry.id,
        faults,
    })
}

/// Returns later entries about the same target, newest first.
async fn later(
    request: &WorkspaceRequest,
    entry: &StoredEntry,
    act: &[StoredEntry],
) -> Result<Vec<StoredEntry>, Error> {
    let about = targets(entry).first().and_then(|target| target["id"].as_str().map(str::to_owned));
    let Some(about) = about else { return Ok(Vec::new()) };
    let filter = AuditFilter {
        about: Some(about),
        from: Some(entry.at),
        limit: LATER_MAX,
        ..AuditFilter::default()
    };
    let mut found = audit::list_for_caller(&request.visit.app, &request.caller, &filter).await?;
    let is_later = |other: &StoredEntry| (other.at, &other.id) > (entry.at, &entry.id);
    found.retain(|other| is_later(other) && !act.iter().any(|of_act| of_act.id == other.id));
    Ok(found)
}

fn target(request: &WorkspaceRequest, entry: &StoredEntry, value: &Value) -> Target {
    let id = value["id"].as_str().unwrap_or_default().to_owned();
    let is_root_key = entry.event.starts_with("rootKey.");
    let (kind, section) = match value["type"].as_str().unwrap_or_default() {
        "key" if is_root_key => ("Root key", Some("root-keys")),
        "key" => ("Key", Some("keys")),
        "api" => ("API", Some("apis")),
        "identity" => ("Identity", Some("identities")),
        "permission" => ("Permission", Some("permissions")),
        "role" => ("Role", Some("roles")),
        "ratelimit" => ("Limit", None),
        "ratelimitNamespace" => ("Namespace", Some("ratelimits")),
        "ratelimitOverride" => ("Override", None),
        "user" => ("User", None),
        "invitation" => ("Invitation", None),
        "migration" => ("Import", None),
        "workspace" => ("Workspace", None),
        _ => ("Target", None),
    };
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("about", &id).finish();
    Target {
        kind,
        name: name(value),
        path: section.map(|section| request.path(&format!("/{section}/{id}"))),
        entries: request.path(&format!("/audit?{query}")),
        id,
    }
}

/// Returns the fields whose stored values differ.
fn changed(before: &Fields, after: &Fields) -> Vec<Field> {
    let mut names: Vec<_> = before.keys().collect();
    names.extend(after.keys().filter(|name| !before.contains_key(*name)));
    let field = |name: &String| {
        let value = |fields: &Fields| labels::value(name, fields.get(name).map(|value| &**value));
        Field { name: name.clone(), before: value(before), after: value(after) }
    };
    let is_same = |name: &&String| {
        before.get(*name).map(|value| value.get()) == after.get(*name).map(|value| value.get())
    };
    names.into_iter().filter(|name| !is_same(name)).map(field).collect()
}
