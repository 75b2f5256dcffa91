//! The roles of a key.

use foundation::error::{Error, Refusal, Result};
use foundation::id::KeyId;
use foundation::model::Role;
use store::freshness;

use super::assignment_access::{AssignmentAccess, AssignmentResult, RequiredActions};
use super::{lock_existing, set_roles};
use crate::audit::AuditBatch;
use crate::caller::Caller;
use crate::context::Context;
use crate::permission::Action;
use crate::rbac::{self, Selector, difference};

/// The maximum number of roles of a key.
pub const ROLES_MAX: usize = 100;

/// Adds roles to a key. Returns its roles: the previous ones, then the new ones, each sorted by name.
pub async fn add(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    selectors: Vec<Selector>,
    access: AssignmentAccess,
) -> Result<AssignmentResult<Role>> {
    let required = RequiredActions::new(access, &[Action::AddRoleToKey]);
    change_roles(context, caller, id, selectors, required, |before, selected| {
        let new = difference(selected, before, |role| &role.id);
        before.iter().chain(new).cloned().collect()
    })
    .await
}

/// Removes roles from a key, whether or not it has them. Returns the remaining ones, sorted by name.
pub async fn remove(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    selectors: Vec<Selector>,
    access: AssignmentAccess,
) -> Result<AssignmentResult<Role>> {
    // A caller that may update the key needs no further permission to remove its roles.
    let required = match access {
        AssignmentAccess::KeyAndAssignments => RequiredActions::new(access, &[]),
        AssignmentAccess::AssignmentsOnly => {
            RequiredActions::new(access, &[Action::RemoveRoleFromKey])
        }
    };
    change_roles(context, caller, id, selectors, required, |before, selected| {
        difference(before, selected, |role| &role.id).into_iter().cloned().collect()
    })
    .await
}

/// Replaces the roles of a key. Returns them sorted by name.
pub async fn set(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    selectors: Vec<Selector>,
    access: AssignmentAccess,
) -> Result<AssignmentResult<Role>> {
    let (add, remove) = (Action::AddRoleToKey, Action::RemoveRoleFromKey);
    let required = RequiredActions::for_replacement(access, &[], add, remove);
    change_roles(context, caller, id, selectors, required, |_, selected| selected.to_vec()).await
}

/// Changes the roles of a key. Checks that the key exists before it checks the caller's permissions.
async fn change_roles(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    selectors: Vec<Selector>,
    required: RequiredActions<'_>,
    after: impl FnOnce(&[Role], &[Role]) -> Vec<Role> + Send,
) -> Result<AssignmentResult<Role>> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let stored = lock_existing(&mut tx, caller, id).await?;
    required.require_actions(caller, &stored.key)?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let selected = rbac::resolve_roles(&mut tx, caller, selectors, &mut entries, now).await?;
    let before = &tx.list_roles_by_ids(caller.workspace_id(), &stored.role_ids).await?;
    let after = after(before, &selected);
    if after.len() > ROLES_MAX {
        return Err(Error::PreconditionFailed(Refusal::TooManyRoles(ROLES_MAX)));
    }
    required.require_assignment_actions(caller, before, &after, |role| &role.id)?;
    if context.settings.security.strict_grants {
        let (add, remove) = (Action::AddRoleToKey, Action::RemoveRoleFromKey);
        let strict =
            RequiredActions::for_replacement(AssignmentAccess::AssignmentsOnly, &[], add, remove);
        strict.require_assignment_actions(caller, before, &after, |role| &role.id)?;
    }
    set_roles(&mut tx, &mut entries, &stored.key, before, &after).await?;
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Key(id.clone()));
    context.commit(tx).await?;
    Ok(AssignmentResult { selected, after })
}
