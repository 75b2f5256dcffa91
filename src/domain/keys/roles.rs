//! The roles of a key.

use super::super::audit::Entries;
use super::super::caller::Caller;
use super::super::permission::Action;
use super::super::rbac::{self, Pick, beyond};
use super::links::{Changed, Needed, Rights};
use super::{existing, set_roles};
use crate::app::App;
use crate::error::{Error, Refusal, Result};
use crate::id::KeyId;
use crate::model::Role;
use crate::store::freshness;

/// How many roles a key may have.
pub const ROLES_MAX: usize = 100;

/// Gives a key roles. It has then: what it had before, and what is new, each by name.
pub async fn add(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    picks: Vec<Pick>,
    rights: Rights,
) -> Result<Changed<Role>> {
    let needed = Needed::new(rights, &[Action::AddRoleToKey]);
    change(app, caller, id, picks, needed, |before, picked| {
        let new = beyond(picked, before, |role| &role.id);
        before.iter().chain(new).cloned().collect()
    })
    .await
}

/// Takes roles from a key, whether it has them or not. It has then the others, by name.
pub async fn remove(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    picks: Vec<Pick>,
    rights: Rights,
) -> Result<Changed<Role>> {
    // Who may change the key needs no more than that to take its roles.
    let needed = match rights {
        Rights::KeyToo => Needed::new(rights, &[]),
        Rights::LinksOnly => Needed::new(rights, &[Action::RemoveRoleFromKey]),
    };
    change(app, caller, id, picks, needed, |before, picked| {
        beyond(before, picked, |role| &role.id).into_iter().cloned().collect()
    })
    .await
}

/// Makes these the roles of a key, by name.
pub async fn set(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    picks: Vec<Pick>,
    rights: Rights,
) -> Result<Changed<Role>> {
    let (give, take) = (Action::AddRoleToKey, Action::RemoveRoleFromKey);
    let needed = Needed::to_set(rights, &[], give, take);
    change(app, caller, id, picks, needed, |_, picked| picked.to_vec()).await
}

/// Whether the key is there comes first, then what the root key may.
async fn change(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    picks: Vec<Pick>,
    needed: Needed<'_>,
    after: impl FnOnce(&[Role], &[Role]) -> Vec<Role> + Send,
) -> Result<Changed<Role>> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let stored = existing(&mut tx, caller, id).await?;
    needed.check(caller, &stored.key)?;
    let mut entries = Entries::of(caller, now);
    let picked = rbac::picked_roles(&mut tx, caller, picks, &mut entries, now).await?;
    let before = &tx.roles(caller.workspace(), &stored.role_ids).await?;
    let after = after(before, &picked);
    if after.len() > ROLES_MAX {
        return Err(Error::Refused(Refusal::TooManyRoles(ROLES_MAX)));
    }
    needed.check_links(caller, before, &after, |role| &role.id)?;
    if app.settings.security.strict_grants {
        let (give, take) = (Action::AddRoleToKey, Action::RemoveRoleFromKey);
        let strict = Needed::to_set(Rights::LinksOnly, &[], give, take);
        strict.check_links(caller, before, &after, |role| &role.id)?;
    }
    set_roles(&mut tx, &mut entries, &stored.key, before, &after).await?;
    entries.write(&mut tx).await?;
    tx.changed(freshness::Subject::Key(id.clone()));
    app.commit(tx).await?;
    Ok(Changed { picked, after })
}
