//! Root keys that users create, list, revoke, restore and rotate.

use std::collections::BTreeSet;

use foundation::clock::Timestamp;
use foundation::error::{Error, ResourceRef, Result};
use foundation::id::{ApiId, KeyId, WorkspaceId};
use foundation::model::RootKey;
use foundation::secret::{KeyHash, Plaintext};
use serde_json::{Value, json};
use store::{StoredRootKey, Tx, freshness};

use super::{generate_secret, insert_root_key, root_key_target};
use crate::audit::{AuditBatch, AuditEvent, FieldChanges, Target};
use crate::caller::Caller;
use crate::context::Context;
use crate::form_results::{self, CreatedSecret};
use crate::names;
use crate::page::{KeyOrder, Page, Paging};
use crate::permission::{self, Action};

/// The maximum length of the name of a root key, in characters.
pub const NAME_MAX: usize = 255;
/// The maximum number of permissions of a root key.
const PERMISSIONS_MAX: usize = 500;

/// The fields of a root key to create.
#[derive(Debug)]
pub struct NewRootKey {
    pub name: Option<String>,
    /// Permission tuples, such as `api.*.create_key`.
    pub permissions: Vec<String>,
    pub expires_at: Option<Timestamp>,
}

/// The result of a rotation: the new root key.
#[derive(Debug)]
pub struct RotationResult {
    pub key: RootKey,
    pub secret: Plaintext,
    /// When the old root key expires.
    pub old_expires_at: Timestamp,
}

/// Creates a root key. Its permissions must be a subset of those of the caller, and the resources that they name must
/// exist.
pub async fn create(
    context: &Context,
    caller: &Caller,
    new: NewRootKey,
) -> Result<(RootKey, Plaintext)> {
    caller.require(Action::CreateRootKey)?;
    let now = context.clock.now();
    for tuple in &new.permissions {
        caller.require_permission(tuple)?;
    }
    let secret = generate_secret();
    let mut tx = context.store.begin().await?;
    validate(&mut tx, caller.workspace_id(), &new, now).await?;
    let key = insert_root_key(&mut tx, context, caller.workspace_id(), new, &secret).await?;
    let change = FieldChanges::created(&root_key_snapshot(&key))?;
    record(&mut tx, caller, now, AuditEvent::RootKeyCreated, &[root_key_target(&key)], change)
        .await?;
    form_results::record(&mut tx, caller, &key.id, Some(CreatedSecret::new(&secret)), now).await?;
    context.commit(tx).await?;
    Ok((key, secret))
}

/// Returns an error if a root key cannot be created with these fields, whoever creates it. The resources that its
/// permissions name must exist.
pub(super) async fn validate(
    tx: &mut Tx,
    workspace: &WorkspaceId,
    new: &NewRootKey,
    now: Timestamp,
) -> Result<()> {
    let name = new.name.as_deref().unwrap_or_default();
    if name.chars().count() > NAME_MAX {
        let message = format!("name must have at most {NAME_MAX} characters");
        return Err(Error::invalid("name", message));
    }
    names::validate("name", name)?;
    if new.permissions.is_empty() || new.permissions.len() > PERMISSIONS_MAX {
        let message = format!("select 1 to {PERMISSIONS_MAX} permissions");
        return Err(Error::invalid("permission", message));
    }
    for tuple in &new.permissions {
        permission::parse_tuple(tuple).map_err(|message| Error::invalid("permission", message))?;
    }
    if new.expires_at.is_some_and(|expires| expires <= now) {
        return Err(Error::invalid("expires", "expires must be in the future"));
    }
    require_existing_resources(tx, workspace, &new.permissions).await
}

/// Returns an error if a permission names an API or a namespace that does not exist in the workspace, or is deleted.
async fn require_existing_resources(
    tx: &mut Tx,
    workspace: &WorkspaceId,
    tuples: &[String],
) -> Result<()> {
    let reference = |tuple: &'_ String| {
        let (action, id) = permission::parse_tuple(tuple).ok()?;
        (id != "*").then(|| (action.resource(), id.to_owned()))
    };
    let references: BTreeSet<_> = tuples.iter().filter_map(reference).collect();
    for (resource, id) in references {
        let missing = match resource {
            "api" => {
                let id = ApiId::from(id);
                let found = tx.find_api(workspace, &id).await?;
                found.is_none_or(|api| api.deleted_at.is_some()).then_some(ResourceRef::Api(id))
            }
            "ratelimit" => {
                let found = tx.find_namespace(workspace, &id).await?;
                let found = found.filter(|namespace| namespace.id.as_str() == id);
                found
                    .is_none_or(|namespace| namespace.deleted_at.is_some())
                    .then_some(ResourceRef::Namespace(id))
            }
            _ => None,
        };
        if let Some(missing) = missing {
            return Err(Error::not_found(missing));
        }
    }
    Ok(())
}

/// Lists a page of the root keys of the workspace, the latest or the oldest first: only valid ones, or all.
pub async fn list_for_caller(
    context: &Context,
    caller: &Caller,
    only_live: bool,
    order: KeyOrder,
    paging: &Paging,
) -> Result<Page<StoredRootKey>> {
    caller.require(Action::ReadRootKey)?;
    let live_at = only_live.then(|| context.clock.now());
    let mut reader = context.store.read().await?;
    let (workspace, listing) = (caller.workspace_id(), paging.to_page_query());
    let is_latest_first = order == KeyOrder::LatestFirst;
    let rows = reader.list_root_keys(workspace, live_at, is_latest_first, &listing).await?;
    Ok(Page::new(rows, paging, |row| &row.key.id))
}

/// Returns a root key of the workspace, even if it is revoked.
pub async fn get(context: &Context, caller: &Caller, id: &KeyId) -> Result<StoredRootKey> {
    caller.require(Action::ReadRootKey)?;
    let found = context.store.read().await?.find_root_key(caller.workspace_id(), id).await?;
    found.ok_or_else(|| Error::not_found(ResourceRef::RootKey(id.clone())))
}

/// Returns the id of the root key of the workspace with this secret, even if it is revoked or has expired. Without the permission
/// to read root keys, none is found.
pub async fn find_by_secret(
    context: &Context,
    caller: &Caller,
    secret: &str,
) -> Result<Option<KeyId>> {
    if !caller.is_allowed(Action::ReadRootKey) {
        return Ok(None);
    }
    let hash = KeyHash::compute(secret).to_base64();
    let found = context.store.read().await?.find_root_key_by_hash(&hash).await?;
    Ok(found.filter(|key| key.workspace_id == *caller.workspace_id()).map(|key| key.id))
}

/// Revokes a root key for a caller. Does nothing if it has already been revoked.
pub async fn revoke(context: &Context, caller: &Caller, id: &KeyId) -> Result<()> {
    caller.require(Action::RevokeRootKey)?;
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let key = get_for_update(&mut tx, caller, id).await?;
    if tx.revoke_root_key(id, now).await?.is_none() {
        return Ok(());
    }
    let change = FieldChanges::deleted(&root_key_snapshot(&key))?;
    record(&mut tx, caller, now, AuditEvent::RootKeyRevoked, &[root_key_target(&key)], change)
        .await?;
    tx.record_change(freshness::CacheTag::RootKey(id.clone()));
    context.commit(tx).await
}

/// Restores a revoked root key. The caller must be allowed to create one with the same permissions.
pub async fn restore(context: &Context, caller: &Caller, id: &KeyId) -> Result<()> {
    caller.require(Action::CreateRootKey)?;
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let key = get_for_update(&mut tx, caller, id).await?;
    for tuple in &key.permissions {
        caller.require_permission(tuple)?;
    }
    let restored = tx.restore_root_key(caller.workspace_id(), id).await?;
    let hash = restored.ok_or_else(|| Error::not_found(ResourceRef::RootKey(id.clone())))?;
    let (targets, change) = ([root_key_target(&key)], FieldChanges::default());
    record(&mut tx, caller, now, AuditEvent::RootKeyRestored, &targets, change).await?;
    tx.record_change(freshness::CacheTag::RootKey(id.clone()));
    if let Some(hash) = KeyHash::from_base64(&hash) {
        tx.record_change(freshness::CacheTag::NewKey(hash.fingerprint()));
    }
    context.commit(tx).await
}

/// Returns the audit snapshot of a root key.
pub(super) fn root_key_snapshot(key: &RootKey) -> Value {
    json!({ "name": key.name, "permissions": key.permissions, "expires": key.expires_at })
}

/// Creates a root key with the permissions and the expiry of an existing one. The old one expires after `grace_ms`, or
/// earlier if it would have expired earlier. A revoked or expired root key cannot be rotated.
pub async fn rotate(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    grace_ms: i64,
) -> Result<RotationResult> {
    caller.require(Action::CreateRootKey)?;
    caller.require(Action::RevokeRootKey)?;
    let now = context.clock.now();
    let secret = generate_secret();
    let mut tx = context.store.begin().await?;
    let old = get_for_update(&mut tx, caller, id).await?;
    if old.revoked_at.is_some() || old.expires_at.is_some_and(|expires| expires < now) {
        return Err(Error::not_found(ResourceRef::RootKey(id.clone())));
    }
    for tuple in &old.permissions {
        caller.require_permission(tuple)?;
    }
    let new = NewRootKey {
        name: old.name.clone(),
        permissions: old.permissions.clone(),
        expires_at: old.expires_at,
    };
    let key = insert_root_key(&mut tx, context, caller.workspace_id(), new, &secret).await?;
    // A key is still valid in the millisecond in which it expires.
    let grace_end = now.plus_ms(grace_ms - 1);
    let old_ends = old.expires_at.map_or(grace_end, |expires| expires.min(grace_end));
    tx.set_root_key_expiry(id, old_ends).await?;
    let targets = [root_key_target(&old), root_key_target(&key)];
    record(&mut tx, caller, now, AuditEvent::RootKeyRotated, &targets, FieldChanges::default())
        .await?;
    tx.record_change(freshness::CacheTag::RootKey(id.clone()));
    let shown = CreatedSecret { plaintext: &secret, replaced_expires_at: Some(old_ends) };
    form_results::record(&mut tx, caller, &key.id, Some(shown), now).await?;
    context.commit(tx).await?;
    Ok(RotationResult { key, secret, old_expires_at: old_ends })
}

async fn get_for_update(tx: &mut Tx, caller: &Caller, id: &KeyId) -> Result<RootKey> {
    let found = tx.lock_root_key(caller.workspace_id(), id).await?;
    found.ok_or_else(|| Error::not_found(ResourceRef::RootKey(id.clone())))
}

async fn record(
    tx: &mut Tx,
    caller: &Caller,
    now: Timestamp,
    event: AuditEvent,
    targets: &[Target<'_>],
    change: FieldChanges,
) -> Result<()> {
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add_change(event, targets, change);
    entries.write(tx).await
}
