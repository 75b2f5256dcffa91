//! Undo of audit entries. An undo runs the same functions as any other operation, requires the same permissions and
//! writes its own audit entry with a reference to the undone one. An entry can be undone once; the undo itself can be
//! undone.

mod action;

pub use action::{UndoAction, UndoRefusal, plan_undo};

use std::str::FromStr;

use foundation::error::{Error, Refusal, Result};
use foundation::id::{AuditId, RoleId};
use foundation::model::{MemberRole, OutagePolicy};

use super::audit::{self, fields};
use super::caller::Caller;
use super::identities::{self, IdentityRef};
use super::keys::{self, AssignmentAccess, CreditsUpdate, Deletion, UpdatedAtPolicy};
use super::ratelimits::{OverrideState, namespaces, overrides};
use super::rbac::{self, MissingPolicy, PickBy, RoleChange, Selector};
use super::{apis, root_keys, users};
use crate::app::App;

/// Undoes an entry and returns the action that was applied.
pub async fn undo(app: &App, caller: &Caller, id: &AuditId) -> Result<UndoAction> {
    let (entry, _) = audit::get_with_group(app, caller, id).await?;
    if entry.undone_by.is_some() {
        return Err(Error::Refused(Refusal::UndoneAlready));
    }
    let action = plan_undo(&entry).map_err(|reason| Error::Refused(Refusal::NotUndone(reason)))?;
    let caller = Caller { undoes: Some(id.clone()), idempotency_key: None, ..caller.clone() };
    let before = entry.before.unwrap_or_default();
    // Boxed: the future contains those of all operations.
    Box::pin(apply_undo(app, &caller, &action, &before)).await?;
    Ok(action)
}

#[expect(clippy::too_many_lines, reason = "a few lines for each action")]
async fn apply_undo(app: &App, caller: &Caller, action: &UndoAction, before: &str) -> Result<()> {
    match action {
        UndoAction::SetKey(id) => {
            keys::update(app, caller, id, keys::change_from_snapshot(&fields(before)?)?).await
        }
        UndoAction::AddCredits(id, credits) => {
            let update = match *credits {
                less if less < 0 => CreditsUpdate::Decrement(less.saturating_neg()),
                more => CreditsUpdate::Increment(more),
            };
            keys::update_credits(app, caller, id, update, UpdatedAtPolicy::Set).await.map(drop)
        }
        UndoAction::DeleteKey(id) => keys::delete(app, caller, id, Deletion::Soft).await,
        UndoAction::RestoreKey(id) => keys::restore(app, caller, id).await,
        UndoAction::GivePermission(key, permission) => {
            let selectors = one(permission.as_str());
            keys::permissions::add(app, caller, key, selectors, AssignmentAccess::KeyToo)
                .await
                .map(drop)
        }
        UndoAction::TakePermission(key, permission) => {
            let selectors = one(permission.as_str());
            keys::permissions::remove(app, caller, key, selectors, AssignmentAccess::KeyToo)
                .await
                .map(drop)
        }
        UndoAction::GiveRole(key, role) => {
            keys::roles::add(app, caller, key, one(role.as_str()), AssignmentAccess::KeyToo)
                .await
                .map(drop)
        }
        UndoAction::TakeRole(key, role) => {
            let selectors = one(role.as_str());
            keys::roles::remove(app, caller, key, selectors, AssignmentAccess::KeyToo)
                .await
                .map(drop)
        }
        UndoAction::DeletePermission(id) => rbac::delete_permission(app, caller, id.as_str()).await,
        UndoAction::RestorePermission(id) => {
            rbac::restore_permission(app, caller, id, before).await
        }
        UndoAction::SetRole(id) => {
            let change = RoleChange::change_from_snapshot(&fields(before)?)?;
            rbac::change_role(app, caller, id, change).await.map(drop)
        }
        UndoAction::DeleteRole(id) => rbac::delete_role(app, caller, id.as_str()).await,
        UndoAction::RestoreRole(id) => rbac::restore_role(app, caller, id, before).await,
        UndoAction::GiveToRole(role, slug) => {
            let with = |mut slugs: Vec<String>| {
                slugs.push(slug.clone());
                slugs
            };
            set_role(app, caller, role, with).await
        }
        UndoAction::TakeFromRole(role, slug) => {
            let without = |mut slugs: Vec<String>| {
                slugs.retain(|other| other != slug);
                slugs
            };
            set_role(app, caller, role, without).await
        }
        UndoAction::SetIdentity(id) => {
            let change = identities::change_from_snapshot(&fields(before)?)?;
            let reference = IdentityRef::Id(id.to_string());
            identities::update(app, caller, &reference, change).await.map(drop)
        }
        UndoAction::DeleteIdentity(id) => {
            identities::delete(app, caller, &IdentityRef::Id(id.to_string())).await
        }
        UndoAction::RestoreIdentity(id) => identities::restore(app, caller, id, before).await,
        UndoAction::SetApi(id) => {
            apis::change(app, caller, id, apis::change_from_snapshot(&fields(before)?)?)
                .await
                .map(drop)
        }
        UndoAction::DeleteApi(id) => apis::delete(app, caller, id).await,
        UndoAction::RestoreApi(id) => apis::restore(app, caller, id).await.map(drop),
        UndoAction::SetNamespace(id) => {
            let on_outage: OutagePolicy = word(before, "onOutage")?;
            namespaces::update_outage_policy(app, caller, id, on_outage).await.map(drop)
        }
        UndoAction::DeleteNamespace(id) => namespaces::delete_by(app, caller, id).await.map(drop),
        UndoAction::RestoreNamespace(id) => namespaces::restore(app, caller, id).await.map(drop),
        UndoAction::SetOverride(namespace) => {
            let snapshot: OverrideState = audit::parse_snapshot(before)?;
            overrides::set(app, caller, snapshot.into_new_override(namespace.to_string()))
                .await
                .map(drop)
        }
        UndoAction::DeleteOverride(namespace, identifier) => {
            overrides::delete(app, caller, namespace.as_str(), identifier).await
        }
        UndoAction::SetMemberRole(id) => {
            let role: MemberRole = word(before, "role")?;
            users::set_role(app, caller, id, role).await
        }
        UndoAction::RemoveMember(id) => users::remove(app, caller, id).await,
        UndoAction::WithdrawInvitation(id) => users::withdraw(app, caller, id).await,
        UndoAction::RevokeRootKey(id) => root_keys::end(app, caller, id).await,
        UndoAction::RestoreRootKey(id) => root_keys::restore(app, caller, id).await,
    }
}

/// Returns a field of a snapshot whose text parses to a value of `T`.
fn word<T: FromStr>(snapshot: &str, field: &str) -> Result<T> {
    let value = fields(snapshot)?.swap_remove(field);
    let text: Option<String> = value.map(|value| audit::read(&value)).transpose()?;
    let parsed = text.and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| Error::Internal(format!("the audit entry has no valid {field}")))
}

/// Returns the selector of an existing permission or role, by id.
fn one(id: &str) -> Vec<Selector> {
    vec![Selector { by: PickBy::Id(id.to_owned()), missing: MissingPolicy::Refused }]
}

/// Applies `change` to the permission slugs of a role.
async fn set_role(
    app: &App,
    caller: &Caller,
    id: &RoleId,
    change: impl FnOnce(Vec<String>) -> Vec<String>,
) -> Result<()> {
    let role = rbac::get_role(app, caller, id.as_str()).await?;
    let slugs = role.permissions.into_iter().map(|permission| permission.slug).collect();
    rbac::set_role_permissions(app, caller, id, change(slugs)).await.map(drop)
}
