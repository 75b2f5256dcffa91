//! The roles of a key.

use super::super::audit::Entries;
use super::super::caller::Caller;
use super::super::permission::Action;
use super::super::rbac;
use super::{existing, set_roles as connect};
use crate::app::App;
use crate::error::{Error, Refusal, Result};
use crate::id::KeyId;
use crate::model::Role;
use crate::store::{StoredKey, Tx, freshness};

/// How many roles a key may have.
pub const ROLES_MAX: usize = 100;

/// Gives a key roles, by name; each must exist. What the key has then: what it had before, then what is
/// new, each by name.
pub async fn add(app: &App, caller: &Caller, id: &KeyId, names: Vec<String>) -> Result<Vec<Role>> {
    let (mut tx, stored, before) = begin(app, caller, id, &[Action::AddRoleToKey]).await?;
    let (wanted, _) = rbac::existing(&mut tx, caller, names, Vec::new()).await?;
    let mut after = before.clone();
    after.extend(rbac::beyond(&wanted, &before, |role| &role.id).into_iter().cloned());
    finish(app, tx, caller, &stored, &before, after).await
}

/// Takes roles from a key, by name; each must exist, whether the key has it or not. What the key has then,
/// by name.
pub async fn remove(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    names: Vec<String>,
) -> Result<Vec<Role>> {
    let (mut tx, stored, before) = begin(app, caller, id, &[]).await?;
    let (unwanted, _) = rbac::existing(&mut tx, caller, names, Vec::new()).await?;
    let kept = rbac::beyond(&before, &unwanted, |role| &role.id);
    let after = kept.into_iter().cloned().collect();
    finish(app, tx, caller, &stored, &before, after).await
}

/// Makes these the roles of a key, by name; each must exist. Gives them back, by name.
pub async fn set(app: &App, caller: &Caller, id: &KeyId, names: Vec<String>) -> Result<Vec<Role>> {
    let (mut tx, stored, before) = begin(app, caller, id, &[]).await?;
    let (after, _) = rbac::existing(&mut tx, caller, names, Vec::new()).await?;
    finish(app, tx, caller, &stored, &before, after).await
}

/// Whether the key is there comes first, then what the root key may.
async fn begin(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    needed: &[Action],
) -> Result<(Tx, StoredKey, Vec<Role>)> {
    let mut tx = app.store.begin().await?;
    let stored = existing(&mut tx, caller, id).await?;
    caller.require_on(Action::UpdateKey, &stored.key.api_id)?;
    needed.iter().try_for_each(|action| caller.require(*action))?;
    let roles = tx.roles(caller.workspace(), &stored.role_ids).await?;
    Ok((tx, stored, roles))
}

async fn finish(
    app: &App,
    mut tx: Tx,
    caller: &Caller,
    stored: &StoredKey,
    before: &[Role],
    after: Vec<Role>,
) -> Result<Vec<Role>> {
    if after.len() > ROLES_MAX {
        return Err(Error::Refused(Refusal::TooManyRoles(ROLES_MAX)));
    }
    let mut entries = Entries::of(caller, app.clock.now());
    connect(&mut tx, &mut entries, &stored.key, before, &after).await?;
    entries.write(&mut tx).await?;
    tx.changed(freshness::Subject::Key(stored.key.id.clone()));
    app.commit(tx).await?;
    Ok(after)
}
