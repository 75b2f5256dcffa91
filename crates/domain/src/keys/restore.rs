//! Restoring a deleted key.

use foundation::error::{Error, ResourceRef, Result};
use foundation::id::KeyId;
use foundation::secret::KeyHash;
use store::freshness;

use super::{audit_target, lock_existing};
use crate::apis;
use crate::audit::{AuditBatch, AuditEvent};
use crate::caller::Caller;
use crate::context::Context;
use crate::permission::Action;

/// Restores a key that was deleted, unless permanently. It verifies again at once, with its remaining credits.
pub async fn restore(context: &Context, caller: &Caller, id: &KeyId) -> Result<()> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let restored = tx.restore_key(caller.workspace_id(), id).await?;
    let (api, hash) = restored.ok_or_else(|| Error::not_found(ResourceRef::Key(id.clone())))?;
    caller.require_on(Action::CreateKey, &api)?;
    apis::require_not_deleted(tx.find_api(caller.workspace_id(), &api).await?, &api)?;
    let key = lock_existing(&mut tx, caller, id).await?.key;
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add(AuditEvent::KeyRestored, &[audit_target(&key)]);
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Key(id.clone()));
    // Replicas may have cached that no key has this hash.
    if let Some(hash) = KeyHash::from_base64(&hash) {
        tx.record_change(freshness::CacheTag::NewKey(hash.fingerprint()));
    }
    context.commit(tx).await
}
