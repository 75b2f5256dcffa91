//! One entry: what it changed, what else was done with it and afterwards, and undoing it.

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

/// How many later entries about the same thing are looked at.
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
    /// Whether there was something before, and something after.
    was: bool,
    is: bool,
    together: Vec<Row>,
    later: Vec<Row>,
    undoes: Option<String>,
    undone_by: Option<String>,
    /// What undoing it would come to, or why it cannot be undone.
    promise: Result<&'static str, &'static str>,
    may_undo: bool,
    faults: FormErrors,
}

/// What it was done to.
struct Target {
    kind: &'static str,
    name: String,
    id: String,
    /// Where it is, if it still is.
    path: Option<String>,
    /// Other entries about it.
    entries: String,
}

/// A field that was changed.
struct Field {
    name: String,
    before: String,
    after: String,
}

pub async fn show(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    page(&shown(&asked, &AuditId::from(id), FormErrors::default()).await?)
}

pub async fn undo(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let id = AuditId::from(id);
    match split_form_errors(undo::undo(&asked.visit.app, &asked.caller, &id).await)? {
        Ok(_) => redirect_to(&asked.path(&format!("/audit/{id}?notice=undone"))),
        Err(faults) => refused_page(&shown(&asked, &id, faults).await?),
    }
}

async fn shown(
    asked: &WorkspaceRequest,
    id: &AuditId,
    faults: FormErrors,
) -> Result<Show, Failure> {
    let app = &asked.visit.app;
    let (entry, act) = audit::get_with_group(app, &asked.caller, id).await?;
    let now = app.clock.now();
    let row = |entry: &StoredEntry| Row::new(asked, entry, now);
    let later = later(asked, &entry, &act).await?;
    let fields = |kept: &Option<String>| kept.as_deref().map(audit::fields).transpose();
    let (before, after) = (fields(&entry.before)?, fields(&entry.after)?);
    let link = |id: &String| asked.path(&format!("/audit/{id}"));
    Ok(Show {
        shell: Layout::of(asked, Section::Audit, "Entry of the audit log").await?,
        list: asked.path("/audit"),
        path: asked.path(&format!("/audit/{id}")),
        what: labels::event(&entry.event).to_owned(),
        who: who(&entry),
        actor: match entry.actor_type.as_str() {
            "rootkey" => format!("root key {}", entry.actor_id),
            "user" => format!("person {}", entry.actor_id),
            _ => "a command, or the server itself".to_owned(),
        },
        at: TimeLabel::new(entry.at, now),
        exact: utc(entry.at),
        address: entry.remote_address.clone(),
        user_agent: entry.user_agent.clone(),
        targets: targets(&entry).iter().map(|told| target(asked, &entry, told)).collect(),
        was: before.is_some(),
        is: after.is_some(),
        fields: changed(&before.unwrap_or_default(), &after.unwrap_or_default()),
        together: act.iter().filter(|other| other.id != entry.id).map(row).collect(),
        later: later.iter().map(row).collect(),
        undoes: entry.undoes.as_ref().map(link),
        undone_by: entry.undone_by.as_ref().map(link),
        promise: undo::plan_undo(&entry).map(|way| labels::undo_description(&way)),
        may_undo: asked.membership.role != MemberRole::Viewer,
        event: entry.event,
        id: entry.id,
        faults,
    })
}

/// What was done to the same thing afterwards, the latest first.
async fn later(
    asked: &WorkspaceRequest,
    entry: &StoredEntry,
    act: &[StoredEntry],
) -> Result<Vec<StoredEntry>, Error> {
    let about = targets(entry).first().and_then(|target| target["id"].as_str().map(str::to_owned));
    let Some(about) = about else { return Ok(Vec::new()) };
    let wanted = AuditFilter {
        about: Some(about),
        from: Some(entry.at),
        limit: LATER_MAX,
        ..AuditFilter::default()
    };
    let mut found = audit::list_for_caller(&asked.visit.app, &asked.caller, &wanted).await?;
    let is_later = |other: &StoredEntry| (other.at, &other.id) > (entry.at, &entry.id);
    found.retain(|other| is_later(other) && !act.iter().any(|of_act| of_act.id == other.id));
    Ok(found)
}

fn target(asked: &WorkspaceRequest, entry: &StoredEntry, told: &Value) -> Target {
    let id = told["id"].as_str().unwrap_or_default().to_owned();
    let is_root_key = entry.event.starts_with("rootKey.");
    let (kind, section) = match told["type"].as_str().unwrap_or_default() {
        "key" if is_root_key => ("Root key", Some("root-keys")),
        "key" => ("Key", Some("keys")),
        "api" => ("API", Some("apis")),
        "identity" => ("Identity", Some("identities")),
        "permission" => ("Permission", Some("permissions")),
        "role" => ("Role", Some("roles")),
        "ratelimit" => ("Limit", None),
        "ratelimitNamespace" => ("Namespace", Some("ratelimits")),
        "ratelimitOverride" => ("Override", None),
        "user" => ("Person", None),
        "invitation" => ("Invitation", None),
        "migration" => ("Import", None),
        "workspace" => ("Workspace", None),
        _ => ("Thing", None),
    };
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("about", &id).finish();
    Target {
        kind,
        name: name(told),
        path: section.map(|section| asked.path(&format!("/{section}/{id}"))),
        entries: asked.path(&format!("/audit?{query}")),
        id,
    }
}

/// The fields that differ, as they are kept.
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
