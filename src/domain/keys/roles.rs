//! The roles of a key.

use foundation::error::{Error, Refusal, Result};
use foundation::id::KeyId;
use foundation::model::Role;
use store::freshness;

use super::super::audit::AuditBatch;
use super::super::caller::Caller;
use super::super::permission::Action;
use super::super::rbac::{self, Selector, difference};
use super::assignment_access::{AssignmentAccess, AssignmentResult, RequiredActions};
use super::{require_existing, set_roles};
use crate::app::App;

/// How many roles a key may have.
pub const ROLES_MAX: usize = 100;

/// Gives a key roles. It has then: what it had before, and what is new, each by name.
pub async fn add(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    picks: Vec<Selector>,
    rights: AssignmentAccess,
) -> Result<AssignmentResult<Role>> {
    let needed = RequiredActions::new(rights, &[Action::AddRoleToKey]);
    change(app, caller, id, picks, needed, |before, picked| {
        let new = difference(picked, before, |role| &role.id);
        before.iter().chain(new).cloned().collect()
    })
    .await
}

/// Takes roles from a key, whether it has them or not. It has then the others, by name.
pub async fn remove(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    picks: Vec<Selector>,
    rights: AssignmentAccess,
) -> Result<AssignmentResult<Role>> {
    // Who may change the key needs no more than that to take its roles.
    let needed = match rights {
        AssignmentAccess::KeyToo => RequiredActions::new(rights, &[]),
        AssignmentAccess::LinksOnly => RequiredActions::new(rights, &[Action::RemoveRoleFromKey]),
    };
    change(app, caller, id, picks, needed, |before, picked| {
        difference(before, picked, |role| &role.id).into_iter().cloned().collect()
    })
    .await
}

/// Makes these the roles of a key, by name.
pub async fn set(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    picks: Vec<Selector>,
    rights: AssignmentAccess,
) -> Result<AssignmentResult<Role>> {
    let (give, take) = (Action::AddRoleToKey, Action::RemoveRoleFromKey);
    let needed = RequiredActions::to_set(rights, &[], give, take);
    change(app, caller, id, picks, needed, |_, picked| picked.to_vec()).await
}

/// Whether the key is there comes first, then what the root key may.
async fn change(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    picks: Vec<Selector>,
    needed: RequiredActions<'_>,
    after: impl FnOnce(&[Role], &[Role]) -> Vec<Role> + Send,
) -> Result<AssignmentResult<Role>> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let stored = require_existing(&mut tx, caller, id).await?;
    needed.check(caller, &stored.key)?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let picked = rbac::resolve_roles(&mut tx, caller, picks, &mut entries, now).await?;
    let before = &tx.roles(caller.workspace(), &stored.role_ids).await?;
    let after = after(before, &picked);
    if after.len() > ROLES_MAX {
        return Err(Error::Refused(Refusal::TooManyRoles(ROLES_MAX)));
    }
    needed.check_links(caller, before, &after, |role| &role.id)?;
    if app.settings.security.strict_grants {
        let (give, take) = (Action::AddRoleToKey, Action::RemoveRoleFromKey);
        let strict = RequiredActions::to_set(AssignmentAccess::LinksOnly, &[], give, take);
        strict.check_links(caller, before, &after, |role| &role.id)?;
    }
    set_roles(&mut tx, &mut entries, &stored.key, before, &after).await?;
    entries.write(&mut tx).await?;
    tx.changed(freshness::CacheTag::Key(id.clone()));
    app.commit(tx).await?;
    Ok(AssignmentResult { picked, after })
}
