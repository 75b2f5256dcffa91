//! The permissions that a key has of itself.

use foundation::error::{Error, Refusal, Result};
use foundation::id::KeyId;
use foundation::model::Permission;
use store::freshness;

use super::super::audit::AuditBatch;
use super::super::caller::Caller;
use super::super::permission::Action;
use super::super::rbac::{self, Selector, difference};
use super::assignment_access::{AssignmentAccess, AssignmentResult, RequiredActions};
use super::{require_existing, set_permissions};
use crate::app::App;

/// How many permissions a key may have of itself.
pub const PERMISSIONS_MAX: usize = 1000;

/// Gives a key permissions. It has then: what it had before, and what is new, each by slug.
pub async fn add(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    picks: Vec<Selector>,
    rights: AssignmentAccess,
) -> Result<AssignmentResult<Permission>> {
    let needed = RequiredActions::new(rights, &[Action::AddPermissionToKey]);
    change(app, caller, id, picks, needed, |before, picked| {
        let new = difference(picked, before, |permission| &permission.id);
        before.iter().chain(new).cloned().collect()
    })
    .await
}

/// Takes permissions from a key, whether it has them or not. It has then the others, by slug.
pub async fn remove(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    picks: Vec<Selector>,
    rights: AssignmentAccess,
) -> Result<AssignmentResult<Permission>> {
    let needed = RequiredActions::new(rights, &[Action::RemovePermissionFromKey]);
    change(app, caller, id, picks, needed, |before, picked| {
        difference(before, picked, |permission| &permission.id).into_iter().cloned().collect()
    })
    .await
}

/// Makes these the permissions that a key has of itself, by slug.
pub async fn set(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    picks: Vec<Selector>,
    rights: AssignmentAccess,
) -> Result<AssignmentResult<Permission>> {
    let (give, take) = (Action::AddPermissionToKey, Action::RemovePermissionFromKey);
    let both = [give, take];
    let needed = RequiredActions::to_set(rights, &both, give, take);
    change(app, caller, id, picks, needed, |_, picked| picked.to_vec()).await
}

/// Whether the key is there comes first, then what the root key may.
async fn change(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    picks: Vec<Selector>,
    needed: RequiredActions<'_>,
    after: impl FnOnce(&[Permission], &[Permission]) -> Vec<Permission> + Send,
) -> Result<AssignmentResult<Permission>> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let stored = require_existing(&mut tx, caller, id).await?;
    needed.check(caller, &stored.key)?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let picked = rbac::picked_permissions(&mut tx, caller, picks, &mut entries, now).await?;
    let before = &stored.permissions;
    let after = after(before, &picked);
    if after.len() > PERMISSIONS_MAX {
        return Err(Error::Refused(Refusal::TooManyPermissions(PERMISSIONS_MAX)));
    }
    needed.check_links(caller, before, &after, |permission| &permission.id)?;
    set_permissions(&mut tx, &mut entries, &stored.key, before, &after).await?;
    entries.write(&mut tx).await?;
    tx.changed(freshness::CacheTag::Key(id.clone()));
    app.commit(tx).await?;
    Ok(AssignmentResult { picked, after })
}
