//! Reading a key without using it.

use std::collections::HashMap;
use std::sync::Arc;

use foundation::clock::{Monotonic, Timestamp};
use foundation::error::{Error, ResourceRef, Result};
use foundation::id::KeyId;
use foundation::model::{Api, Refill};
use foundation::secret::{KeyHash, Plaintext};
use futures_util::FutureExt as _;
use store::StoredKey;
use store::cache::Cached;

use super::audit_target;
use super::create::require_recoverable;
use super::list::load_found_keys;
use crate::audit::{AuditBatch, AuditEvent};
use crate::caller::Caller;
use crate::context::Context;
use crate::keys::Keys;
use crate::permission::Action;
use crate::resolved_key::{self, ApiPart, ResolvedKey, UnresolvedKey};
use crate::{apis, credits, refill, vault};

/// A key and the entities that belong to it.
#[derive(Debug)]
pub struct FoundKey {
    /// Its row.
    pub stored: StoredKey,
    pub resolved: ResolvedKey,
    /// The remaining credits, account and lease together, and the refill. Absent: unlimited.
    pub credits: Option<(i64, Option<Refill>)>,
    /// When its credits were last refilled, if that is known.
    pub refilled_at: Option<Timestamp>,
    /// The plaintext, if it was requested and the key is recoverable.
    pub plaintext: Option<Plaintext>,
}

/// Whether plaintexts are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecryptMode {
    None,
    /// Of recoverable keys; fails if the API stores none.
    Required,
    /// Of recoverable keys, if there are any.
    IfAvailable,
}

/// Returns a key by id, even if it is disabled or expired.
pub async fn get(keys: &Keys, caller: &Caller, id: &KeyId, mode: DecryptMode) -> Result<FoundKey> {
    let read_version = keys.context.freshness.read_version(Monotonic::now());
    let stored = keys.context.store.read().await?.find_key(caller.workspace_id(), id).await?;
    let stored = stored.ok_or_else(|| Error::not_found(ResourceRef::Key(id.clone())))?;
    caller.require_on(Action::ReadKey, &stored.key.api_id)?;
    let mut plaintexts =
        decrypt_plaintexts(&keys.context, caller, std::slice::from_ref(&stored), mode).await?;
    let found_key =
        load_found_key(keys, resolved_key::cache_key(stored, read_version)).boxed().await?;
    Ok(FoundKey { plaintext: plaintexts.remove(id), ..found_key })
}

/// Like [`get`], in a process that serves no requests: it has no part in leases and debits, so the balance is only read.
pub async fn get_without_ledger(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    mode: DecryptMode,
) -> Result<FoundKey> {
    let read_version = context.freshness.read_version(Monotonic::now());
    let stored = context.store.read().await?.find_key(caller.workspace_id(), id).await?;
    let not_found = || Error::not_found(ResourceRef::Key(id.clone()));
    let stored = stored.ok_or_else(not_found)?;
    caller.require_on(Action::ReadKey, &stored.key.api_id)?;
    let mut plaintexts =
        decrypt_plaintexts(context, caller, std::slice::from_ref(&stored), mode).await?;
    let resolved = resolved_key::resolve_all(context, vec![stored], read_version).await?;
    let found = load_found_keys(context, resolved, false).await?.pop().ok_or_else(not_found)?;
    Ok(FoundKey { plaintext: plaintexts.remove(id), ..found })
}

/// Returns the plaintexts of an API's recoverable keys among these. An audit entry is committed first.
pub async fn decrypt_plaintexts(
    context: &Context,
    caller: &Caller,
    stored: &[StoredKey],
    mode: DecryptMode,
) -> Result<HashMap<KeyId, Plaintext>> {
    let Some(first) = stored.first() else { return Ok(HashMap::new()) };
    if mode == DecryptMode::None {
        return Ok(HashMap::new());
    }
    let api_id = &first.key.api_id;
    let mut tx = context.store.begin().await?;
    let api = apis::require_not_deleted(tx.find_api(caller.workspace_id(), api_id).await?, api_id)?;
    if !is_decryptable(context, caller, &api, mode)? {
        return Ok(HashMap::new());
    }
    let ids: Vec<_> = stored.iter().map(|stored| stored.key.id.clone()).collect();
    let plaintexts = vault::unseal(context, &mut *tx, caller.workspace_id(), &ids).await?;
    let mut entries = AuditBatch::for_caller(caller, context.clock.now());
    for stored in stored.iter().filter(|stored| plaintexts.contains_key(&stored.key.id)) {
        entries.add(AuditEvent::KeyDecrypted, &[audit_target(&stored.key)]);
    }
    entries.write(&mut tx).await?;
    context.commit(tx).await?;
    Ok(plaintexts)
}

/// Returns whether plaintexts can exist. Fails unless the root key may decrypt those of the API.
pub fn is_decryptable(
    context: &Context,
    caller: &Caller,
    api: &Api,
    mode: DecryptMode,
) -> Result<bool> {
    let has_master_keys = vault::require_master_keys(context).map(drop);
    let is_recoverable = require_recoverable(api);
    match mode {
        DecryptMode::None => Ok(false),
        DecryptMode::Required => {
            has_master_keys?;
            caller.require_on(Action::DecryptKey, &api.id)?;
            is_recoverable.map(|()| true)
        }
        DecryptMode::IfAvailable => {
            caller.require_on(Action::DecryptKey, &api.id)?;
            Ok(has_master_keys.is_ok() && is_recoverable.is_ok())
        }
    }
}

/// Returns the key with this plaintext. Without the permission to read it, the key is reported as not found.
pub async fn whoami(keys: &Keys, caller: &Caller, key: &str) -> Result<FoundKey> {
    let read_version = keys.context.freshness.read_version(Monotonic::now());
    let stored = keys
        .context
        .store
        .read()
        .await?
        .find_key_by_hash(&KeyHash::compute(key).to_base64())
        .await?;
    let stored = stored
        .filter(|stored| stored.key.workspace_id == *caller.workspace_id())
        .filter(|stored| caller.is_allowed_on(Action::ReadKey, &stored.key.api_id))
        .ok_or_else(|| Error::not_found(ResourceRef::GivenKey))?;
    load_found_key(keys, resolved_key::cache_key(stored, read_version)).boxed().await
}

async fn load_found_key(keys: &Keys, row: Cached<StoredKey>) -> Result<FoundKey> {
    let (context, version) = (&keys.context, row.read_version());
    let api = Arc::new(ApiPart::from(&row.value));
    let unresolved = UnresolvedKey::new(context, &row, api);
    let stored = row.value;
    let resolved = resolved_key::resolve(context, unresolved, version).await?.value;
    let left = credits::get_balance(&keys.ledger, &resolved).await?;
    let refill = stored.key.credits.and_then(|credits| credits.refill);
    let refilled_at = refill::last_refill_at(&stored.key, context.clock.now());
    Ok(FoundKey {
        stored,
        credits: left.map(|left| (left, refill)),
        refilled_at,
        resolved,
        plaintext: None,
    })
}
