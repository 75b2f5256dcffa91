//! Undo of audit entries. An undo runs the same functions as any other operation, requires the same permissions and
//! writes its own audit entry with a reference to the undone one. An entry can be undone once; the undo itself can be
//! undone.

mod action;
mod deleted_key;

pub use crate::audit::UndoAction;
pub use action::plan_undo;
pub use deleted_key::restore_key;

use std::str::FromStr;

use foundation::error::{Error, Refusal, Result};
use foundation::id::{AuditId, KeyId, RoleId};
use foundation::model::{MemberRole, OutagePolicy, Permission, Role};

use crate::audit::{self, StoredEntry, parse_fields};
use crate::caller::Caller;
use crate::identities::{self, IdentityRef};
use crate::keys::Keys;
use crate::keys::{
    self, Assignment, AssignmentAccess, AssignmentChange, CreditsUpdate, Deletion, UpdatedAtPolicy,
};
use crate::ratelimits::{OverrideSnapshot, namespaces, overrides};
use crate::rbac::{self, MissingPolicy, RbacRef, RoleChange, Selector, SelectorValue};
use crate::{apis, gateways, root_keys, users, workspaces};

/// Undoes an entry and returns the action that was applied. Fails with [`Refusal::AlreadyUndone`] if another caller has
/// undone it, also at the same moment.
pub async fn undo(keys: &Keys, caller: &Caller, id: &AuditId) -> Result<UndoAction> {
    let (entry, _) = audit::get_with_group(&keys.context, caller, id).await?;
    if entry.undone_by.is_some() {
        return Err(Error::PreconditionFailed(Refusal::AlreadyUndone));
    }
    let action = plan_undo(&entry)
        .map_err(|reason| Error::PreconditionFailed(Refusal::NotUndoable(reason)))?;
    let caller = Caller {
        undone_entry_id: Some(id.clone()),
        idempotency_key: None,
        form_submission: None,
        ..caller.clone()
    };
    // Boxed: the future contains those of all operations.
    let Err(error) = Box::pin(apply_undo(keys, &caller, &action, &entry)).await else {
        return Ok(action);
    };
    // Of two concurrent undos, the second one can also fail on a row that the first one has restored.
    let current = audit::get_with_group(&keys.context, &caller, id).await;
    Err(match current.is_ok_and(|(entry, _)| entry.undone_by.is_some()) {
        true => Error::PreconditionFailed(Refusal::AlreadyUndone),
        false => error,
    })
}

#[expect(clippy::too_many_lines, reason = "a few lines for each action")]
async fn apply_undo(
    keys: &Keys,
    caller: &Caller,
    action: &UndoAction,
    entry: &StoredEntry,
) -> Result<()> {
    let before = entry.before.as_deref().unwrap_or_default();
    match action {
        UndoAction::RevertKey(id) => {
            keys::update(keys, caller, id, keys::change_from_snapshot(&parse_fields(before)?)?)
                .await
        }
        UndoAction::AddCredits(id, credits) => {
            let update = match *credits {
                less if less < 0 => CreditsUpdate::Decrement(less.saturating_neg()),
                more => CreditsUpdate::Increment(more),
            };
            keys::update_credits(keys, caller, id, update, UpdatedAtPolicy::Set).await.map(drop)
        }
        UndoAction::DeleteKey(id) => keys::delete(&keys.context, caller, id, Deletion::Soft).await,
        UndoAction::RestoreKey(id) => keys::restore(&keys.context, caller, id).await,
        UndoAction::RemoveImportedKeys(migration, api) => {
            keys::remove_import(keys, caller, migration, api, entry.at).await
        }
        UndoAction::AddPermission(key, id) => {
            change_assignment::<Permission>(keys, caller, key, AssignmentChange::Add, id.as_str())
                .await
        }
        UndoAction::RemovePermission(key, id) => {
            let change = AssignmentChange::Remove;
            change_assignment::<Permission>(keys, caller, key, change, id.as_str()).await
        }
        UndoAction::AddRole(key, id) => {
            change_assignment::<Role>(keys, caller, key, AssignmentChange::Add, id.as_str()).await
        }
        UndoAction::RemoveRole(key, id) => {
            let change = AssignmentChange::Remove;
            change_assignment::<Role>(keys, caller, key, change, id.as_str()).await
        }
        UndoAction::DeletePermission(id) => {
            rbac::delete_permission(&keys.context, caller, RbacRef::Id(id.as_str())).await
        }
        UndoAction::RestorePermission(id) => {
            rbac::restore_permission(&keys.context, caller, id, before).await
        }
        UndoAction::RevertRole(id) => {
            let change = RoleChange::change_from_snapshot(&parse_fields(before)?)?;
            rbac::update_role(&keys.context, caller, id, change).await.map(drop)
        }
        UndoAction::DeleteRole(id) => {
            rbac::delete_role(&keys.context, caller, RbacRef::Id(id.as_str())).await
        }
        UndoAction::RestoreRole(id) => rbac::restore_role(&keys.context, caller, id, before).await,
        UndoAction::AddPermissionToRole(role, slug) => {
            let with = |mut slugs: Vec<String>| {
                slugs.push(slug.clone());
                Ok(slugs)
            };
            change_role(keys, caller, role, with).await
        }
        UndoAction::RemovePermissionFromRole(role, slug) => {
            let without = |mut slugs: Vec<String>| {
                slugs.retain(|other| other != slug);
                Ok(slugs)
            };
            change_role(keys, caller, role, without).await
        }
        UndoAction::RevertIdentity(id) => {
            let change = identities::change_from_snapshot(&parse_fields(before)?)?;
            let reference = IdentityRef::Id(id.to_string());
            identities::update(&keys.context, caller, &reference, change).await.map(drop)
        }
        UndoAction::DeleteIdentity(id) => {
            identities::delete(&keys.context, caller, &IdentityRef::Id(id.to_string())).await
        }
        UndoAction::RestoreIdentity(id) => {
            identities::restore(&keys.context, caller, id, before, entry.at).await
        }
        UndoAction::RevertApi(id) => apis::update(
            &keys.context,
            caller,
            id,
            apis::change_from_snapshot(&parse_fields(before)?)?,
        )
        .await
        .map(drop),
        UndoAction::DeleteApi(id) => apis::delete(&keys.context, caller, id).await,
        UndoAction::RestoreApi(id) => apis::restore(&keys.context, caller, id).await.map(drop),
        UndoAction::RevertNamespace(id) => {
            let on_outage: OutagePolicy = parse_text_field(before, "onOutage")?;
            namespaces::update_outage_policy(&keys.context, caller, id, on_outage).await.map(drop)
        }
        UndoAction::DeleteNamespace(id) => {
            namespaces::delete(&keys.context, caller, id).await.map(drop)
        }
        UndoAction::RestoreNamespace(id) => {
            namespaces::restore(&keys.context, caller, id).await.map(drop)
        }
        UndoAction::RevertOverride(namespace) => {
            let snapshot: OverrideSnapshot = audit::parse_snapshot(before)?;
            overrides::set(&keys.context, caller, snapshot.into_new_override(namespace.to_string()))
                .await
                .map(drop)
        }
        UndoAction::DeleteOverride(namespace, identifier) => {
            overrides::delete(&keys.context, caller, namespace.as_str(), identifier).await
        }
        UndoAction::RevertMemberRole(id) => {
            let role: MemberRole = parse_text_field(before, "role")?;
            users::set_member_role(&keys.context, caller, id, role).await
        }
        UndoAction::RemoveMember(id) => users::remove_member(&keys.context, caller, id).await,
        UndoAction::WithdrawInvitation(id) => {
            users::withdraw_invitation(&keys.context, caller, id).await
        }
        UndoAction::RevertGatewayPolicy(id) => {
            let change = audit::parse_snapshot(before)?;
            gateways::update(&keys.context, caller, id.as_str(), change).await.map(drop)
        }
        UndoAction::DeleteGatewayPolicy(id) => {
            gateways::delete(&keys.context, caller, id.as_str()).await
        }
        UndoAction::RestoreGatewayPolicy(id) => gateways::restore(&keys.context, caller, id).await,
        UndoAction::RevokeRootKey(id) => root_keys::revoke(&keys.context, caller, id).await,
        UndoAction::RestoreRootKey(id) => root_keys::restore(&keys.context, caller, id).await,
        UndoAction::RevertWorkspaceName(_) => {
            let name: String = parse_text_field(before, "name")?;
            workspaces::rename(&keys.context, caller, &name).await
        }
    }
}

/// Returns a field of a snapshot whose text parses to a value of `T`.
fn parse_text_field<T: FromStr>(snapshot: &str, field: &str) -> Result<T> {
    let value = parse_fields(snapshot)?.swap_remove(field);
    let text: Option<String> = value.map(|value| audit::parse_field(&value)).transpose()?;
    let parsed = text.and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| Error::Internal(format!("the audit entry has no valid {field}")))
}

/// Changes the permissions of a role. Each must exist: the first entry of the undo is the one that undoes, and a permission
/// that was created would have it.
async fn change_role(
    keys: &Keys,
    caller: &Caller,
    role: &RoleId,
    change: impl FnOnce(Vec<String>) -> Result<Vec<String>>,
) -> Result<()> {
    rbac::change_role_permissions(&keys.context, caller, role, MissingPolicy::Reject, change)
        .await
        .map(drop)
}

/// Adds an existing permission or role to a key, or removes it.
async fn change_assignment<T: Assignment>(
    keys: &Keys,
    caller: &Caller,
    key: &KeyId,
    change: AssignmentChange,
    id: &str,
) -> Result<()> {
    let selector =
        Selector { value: SelectorValue::Id(id.to_owned()), missing_policy: MissingPolicy::Reject };
    let access = AssignmentAccess::KeyAndAssignments;
    keys::change_assignments::<T>(&keys.context, caller, key, change, vec![selector], access)
        .await
        .map(drop)
}
