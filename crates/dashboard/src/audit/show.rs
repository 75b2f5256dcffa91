//! The page of an audit entry: changes, other entries of the same operation, later changes of its target, and undo.

use askama::Template;
use axum::extract::Path;
use domain::audit::{self, AuditFilter, SnapshotFields, StoredEntry};
use domain::permission::Action;
use domain::undo::{self, UndoAction};
use foundation::error::Error;
use foundation::id::AuditId;
use serde_json::Value;

use super::super::confirm::ConfirmPage;
use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::format::{TimeLabel, format_utc};
use super::super::imports::format_imported_keys;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::{AuditTableRow, actor_label, find_undo_denial, labels, parse_targets, target_name};

/// Limits the number of later entries about the same target.
const LATER_MAX: i64 = 10;

#[derive(Template)]
#[template(path = "audit/show.html")]
struct AuditEntryPage {
    layout: Layout,
    list: String,
    path: String,
    label: String,
    actor_label: String,
    actor: String,
    at: TimeLabel,
    exact: String,
    address: Option<String>,
    user_agent: Option<String>,
    event: String,
    id: String,
    targets: Vec<TargetRow>,
    fields: Vec<FieldChangeRow>,
    /// Whether the entry has values from before the change.
    has_before: bool,
    /// Whether the entry has values from after the change.
    has_after: bool,
    same_group: Vec<AuditTableRow>,
    later_entries: Vec<AuditTableRow>,
    undoes: Option<String>,
    undone_by: Option<String>,
    /// The effect of undoing the entry, or why it cannot be undone.
    undo_effect: Result<UndoEffect, &'static str>,
    /// Why the user cannot undo the entry, although it can be undone.
    undo_denial: Option<&'static str>,
    errors: FormErrors,
}

/// The effect of undoing an entry.
struct UndoEffect {
    description: &'static str,
    /// Whether the undo itself cannot be undone, so that it is confirmed first.
    is_permanent: bool,
}

impl UndoEffect {
    fn new(action: &UndoAction) -> Self {
        Self {
            description: labels::undo_description(action),
            is_permanent: matches!(action, UndoAction::RemoveImportedKeys(..)),
        }
    }
}

/// A target of the entry.
struct TargetRow {
    kind: &'static str,
    name: String,
    id: String,
    /// The path of the target's page; `None` if that kind of target has no page.
    path: Option<String>,
    /// The path of the list of all entries about the target.
    entries: String,
}

/// A changed field.
struct FieldChangeRow {
    name: String,
    before: String,
    after: String,
}

pub async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    render_page(&build_page(&request, &AuditId::from(id), FormErrors::default()).await?)
}

/// Asks before the keys of an import are removed, which cannot be undone. Any other entry is undone on its own page.
pub async fn confirm_undo(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    let context = &request.page_request.app.context;
    let (entry, _) = audit::get_with_group(context, &request.caller, &AuditId::from(id)).await?;
    let path = request.workspace_path(&format!("/audit/{}", entry.id));
    let effect = undo::plan_undo(&entry).map(|action| UndoEffect::new(&action));
    let effect = effect.ok().filter(|effect| effect.is_permanent && entry.undone_by.is_none());
    let Some(effect) = effect else { return redirect_to(&path) };
    request.caller.require(Action::DeleteKey)?;
    let targets = parse_targets(&entry);
    let import = targets.iter().find(|target| target["type"] == "migration").map(target_name);
    let keys = format_imported_keys(&entry).unwrap_or_else(|| "the keys".to_owned());
    render_page(&ConfirmPage {
        layout: Layout::for_workspace(&request, Section::Audit, "Undo import").await?,
        question: format!("Remove {keys} of {} permanently?", import.unwrap_or_default()),
        consequences: vec![
            effect.description.to_owned(),
            "This cannot be undone, but the file can be imported again.".to_owned(),
        ],
        action_url: format!("{path}/undo"),
        fields: Vec::new(),
        button: "Remove keys",
        back_url: path,
        back_label: labels::event_label(&entry.event).to_owned(),
    })
}

pub async fn undo(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let id = AuditId::from(id);
    match split_form_errors(undo::undo(&request.page_request.app.keys, &request.caller, &id).await)?
    {
        Ok(_) => redirect_to(&request.workspace_path(&format!("/audit/{id}?notice=undone"))),
        Err(errors) => render_invalid_page(&build_page(&request, &id, errors).await?),
    }
}

async fn build_page(
    request: &WorkspaceRequest,
    id: &AuditId,
    errors: FormErrors,
) -> Result<AuditEntryPage, Failure> {
    let app = &request.page_request.app;
    let (entry, act) = audit::get_with_group(&app.context, &request.caller, id).await?;
    let now = app.context.clock.now();
    let row = |entry: &StoredEntry| AuditTableRow::new(request, entry, now);
    let later = list_later(request, &entry, &act).await?;
    let fields =
        |snapshot: &Option<String>| snapshot.as_deref().map(audit::parse_fields).transpose();
    let (before, after) = (fields(&entry.before)?, fields(&entry.after)?);
    let action = undo::plan_undo(&entry);
    let link = |id: &String| request.workspace_path(&format!("/audit/{id}"));
    Ok(AuditEntryPage {
        layout: Layout::for_workspace(request, Section::Audit, "Audit log")
            .await?
            .about(labels::event_label(&entry.event)),
        list: request.workspace_path("/audit"),
        path: request.workspace_path(&format!("/audit/{id}")),
        label: labels::event_label(&entry.event).to_owned(),
        actor_label: actor_label(&entry),
        actor: match entry.actor_type.as_str() {
            "rootkey" => format!("Root key {}", entry.actor_id),
            "user" => format!("User {}", entry.actor_id),
            "gatewayPolicy" => format!("Gateway policy {}", entry.actor_id),
            _ => "Command line or server".to_owned(),
        },
        at: TimeLabel::new(entry.at, now),
        exact: format_utc(entry.at),
        address: entry.remote_address.clone(),
        user_agent: entry.user_agent.clone(),
        targets: parse_targets(&entry)
            .iter()
            .map(|value| build_target(request, &entry, value))
            .collect(),
        has_before: before.is_some(),
        has_after: after.is_some(),
        fields: list_changes(&before.unwrap_or_default(), &after.unwrap_or_default()),
        same_group: act.iter().filter(|other| other.id != entry.id).map(row).collect(),
        later_entries: later.iter().map(row).collect(),
        undoes: entry.undoes.as_ref().map(link),
        undone_by: entry.undone_by.as_ref().map(link),
        undo_effect: action.as_ref().map(UndoEffect::new).map_err(|why| *why),
        undo_denial: action.as_ref().ok().and_then(|action| find_undo_denial(request, action)),
        event: entry.event,
        id: entry.id,
        errors,
    })
}

/// Returns later entries about the same target, newest first.
async fn list_later(
    request: &WorkspaceRequest,
    entry: &StoredEntry,
    act: &[StoredEntry],
) -> Result<Vec<StoredEntry>, Error> {
    let about =
        parse_targets(entry).first().and_then(|target| target["id"].as_str().map(str::to_owned));
    let Some(about) = about else { return Ok(Vec::new()) };
    let filter = AuditFilter {
        target_ids: vec![about],
        start_at: Some(entry.at),
        rows_max: LATER_MAX,
        ..AuditFilter::default()
    };
    let mut found =
        audit::list_for_caller(&request.page_request.app.context, &request.caller, &filter).await?;
    let is_later = |other: &StoredEntry| (other.at, &other.id) > (entry.at, &entry.id);
    found.retain(|other| is_later(other) && !act.iter().any(|of_act| of_act.id == other.id));
    Ok(found)
}

fn build_target(request: &WorkspaceRequest, entry: &StoredEntry, value: &Value) -> TargetRow {
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
        "gatewayPolicy" => ("Gateway policy", Some("gateways")),
        "ratelimitOverride" => ("Override", None),
        "user" => ("User", None),
        "invitation" => ("Invitation", None),
        "migration" => ("Import", Some("imports")),
        "workspace" => ("Workspace", None),
        _ => ("Target", None),
    };
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("about", &id).finish();
    TargetRow {
        kind,
        name: target_name(value),
        path: section.map(|section| request.workspace_path(&format!("/{section}/{id}"))),
        entries: request.workspace_path(&format!("/audit?{query}")),
        id,
    }
}

/// Returns the fields whose stored values differ.
fn list_changes(before: &SnapshotFields, after: &SnapshotFields) -> Vec<FieldChangeRow> {
    let mut names: Vec<_> = before.keys().collect();
    names.extend(after.keys().filter(|name| !before.contains_key(*name)));
    let field = |name: &String| {
        let value = |fields: &SnapshotFields| {
            labels::format_value(name, fields.get(name).map(|value| &**value))
        };
        FieldChangeRow { name: name.clone(), before: value(before), after: value(after) }
    };
    let is_same = |name: &&String| {
        before.get(*name).map(|value| value.get()) == after.get(*name).map(|value| value.get())
    };
    names.into_iter().filter(|name| !is_same(name)).map(field).collect()
}
