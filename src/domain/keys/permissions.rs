//! The permissions that a key has of itself.

use super::super::audit::Entries;
use super::super::caller::Caller;
use super::super::permission::Action;
use super::super::rbac;
use super::{existing, set_permissions as connect};
use crate::app::App;
use crate::error::{Error, Refusal, Result};
use crate::id::KeyId;
use crate::model::Permission;
use crate::store::{StoredKey, Tx, freshness};

/// How many permissions a key may have of itself.
pub const PERMISSIONS_MAX: usize = 1000;

/// Gives a key permissions, by slug; a missing one is made when the root key may. What the key has then:
/// what it had before, then what is new, each by slug.
pub async fn add(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    slugs: Vec<String>,
) -> Result<Vec<Permission>> {
    let now = app.clock.now();
    let (mut tx, stored) = begin(app, caller, id, &[Action::AddPermissionToKey]).await?;
    let mut entries = Entries::of(caller, now);
    let wanted = rbac::ensure_permissions(&mut tx, caller, slugs, &mut entries, now).await?;
    let mut after = stored.permissions.clone();
    after.extend(rbac::beyond(&wanted, &stored.permissions, |p| &p.id).into_iter().cloned());
    finish(app, tx, entries, &stored, after).await
}

/// Takes permissions from a key, by slug; each must exist, whether the key has it or not. What the key has
/// then, by slug.
pub async fn remove(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    slugs: Vec<String>,
) -> Result<Vec<Permission>> {
    let (mut tx, stored) = begin(app, caller, id, &[Action::RemovePermissionFromKey]).await?;
    let unwanted = rbac::existing_permissions(&mut tx, caller, slugs).await?;
    let entries = Entries::of(caller, app.clock.now());
    let kept = rbac::beyond(&stored.permissions, &unwanted, |permission| &permission.id);
    let after = kept.into_iter().cloned().collect();
    finish(app, tx, entries, &stored, after).await
}

/// Makes these the permissions that a key has of itself, by slug; a missing one is made when the root key
/// may. Gives them back, by slug.
pub async fn set(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    slugs: Vec<String>,
) -> Result<Vec<Permission>> {
    let now = app.clock.now();
    let needed = [Action::AddPermissionToKey, Action::RemovePermissionFromKey];
    let (mut tx, stored) = begin(app, caller, id, &needed).await?;
    let mut entries = Entries::of(caller, now);
    let after = rbac::ensure_permissions(&mut tx, caller, slugs, &mut entries, now).await?;
    finish(app, tx, entries, &stored, after).await
}

/// Whether the key is there comes first, then what the root key may.
async fn begin(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    needed: &[Action],
) -> Result<(Tx, StoredKey)> {
    let mut tx = app.store.begin().await?;
    let stored = existing(&mut tx, caller, id).await?;
    caller.require_on(Action::UpdateKey, &stored.key.api_id)?;
    needed.iter().try_for_each(|action| caller.require(*action))?;
    Ok((tx, stored))
}

async fn finish(
    app: &App,
    mut tx: Tx,
    mut entries: Entries<'_>,
    stored: &StoredKey,
    after: Vec<Permission>,
) -> Result<Vec<Permission>> {
    if after.len() > PERMISSIONS_MAX {
        return Err(Error::Refused(Refusal::TooManyPermissions(PERMISSIONS_MAX)));
    }
    connect(&mut tx, &mut entries, &stored.key, &stored.permissions, &after).await?;
    entries.write(&mut tx).await?;
    tx.changed(freshness::Subject::Key(stored.key.id.clone()));
    app.commit(tx).await?;
    Ok(after)
}
