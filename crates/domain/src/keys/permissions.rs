//! The direct permissions of a key.

use foundation::error::{Error, Refusal, Result};
use foundation::id::KeyId;
use foundation::model::Permission;
use store::freshness;

use super::assignment_access::{AssignmentAccess, AssignmentResult, RequiredActions};
use super::{lock_existing, set_permissions};
use crate::audit::AuditBatch;
use crate::caller::Caller;
use crate::context::Context;
use crate::permission::Action;
use crate::rbac::{self, Selector, difference};

/// The maximum number of direct permissions of a key.
pub const PERMISSIONS_MAX: usize = 1000;

/// Adds permissions to a key. Returns its direct permissions: the previous ones, then the new ones, each sorted by
/// slug.
pub async fn add(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    selectors: Vec<Selector>,
    access: AssignmentAccess,
) -> Result<AssignmentResult<Permission>> {
    let required = RequiredActions::new(access, &[Action::AddPermissionToKey]);
    change_permissions(context, caller, id, selectors, required, |before, selected| {
        let new = difference(selected, before, |permission| &permission.id);
        before.iter().chain(new).cloned().collect()
    })
    .await
}

/// Removes permissions from a key, whether or not it has them. Returns the remaining ones, sorted by slug.
pub async fn remove(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    selectors: Vec<Selector>,
    access: AssignmentAccess,
) -> Result<AssignmentResult<Permission>> {
    let required = RequiredActions::new(access, &[Action::RemovePermissionFromKey]);
    change_permissions(context, caller, id, selectors, required, |before, selected| {
        difference(before, selected, |permission| &permission.id).into_iter().cloned().collect()
    })
    .await
}

/// Replaces the direct permissions of a key. Returns them sorted by slug.
pub async fn set(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    selectors: Vec<Selector>,
    access: AssignmentAccess,
) -> Result<AssignmentResult<Permission>> {
    let (add, remove) = (Action::AddPermissionToKey, Action::RemovePermissionFromKey);
    let both = [add, remove];
    let required = RequiredActions::for_replacement(access, &both, add, remove);
    change_permissions(context, caller, id, selectors, required, |_, selected| selected.to_vec())
        .await
}

/// Changes the direct permissions of a key. Checks that the key exists before it checks the caller's permissions.
async fn change_permissions(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    selectors: Vec<Selector>,
    required: RequiredActions<'_>,
    after: impl FnOnce(&[Permission], &[Permission]) -> Vec<Permission> + Send,
) -> Result<AssignmentResult<Permission>> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let stored = lock_existing(&mut tx, caller, id).await?;
    required.require_actions(caller, &stored.key)?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let selected = rbac::resolve_permissions(&mut tx, caller, selectors, &mut entries, now).await?;
    let before = &stored.permissions;
    let after = after(before, &selected);
    if after.len() > PERMISSIONS_MAX {
        return Err(Error::PreconditionFailed(Refusal::TooManyPermissions(PERMISSIONS_MAX)));
    }
    required.require_assignment_actions(caller, before, &after, |permission| &permission.id)?;
    set_permissions(&mut tx, &mut entries, &stored.key, before, &after).await?;
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Key(id.clone()));
    context.commit(tx).await?;
    Ok(AssignmentResult { selected, after })
}
