//! Restoring a deleted key.

use foundation::error::{Error, Result, Subject};
use foundation::id::KeyId;
use foundation::secret::KeyHash;
use store::freshness;

use super::super::apis;
use super::super::audit::AuditBatch;
use super::super::caller::Caller;
use super::super::permission::Action;
use super::{require_existing, target};
use crate::app::App;

/// Restores a key that was deleted, unless permanently. It verifies again at once, with its remaining credits.
pub async fn restore(app: &App, caller: &Caller, id: &KeyId) -> Result<()> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let restored = tx.restore_key(caller.workspace(), id).await?;
    let (api, hash) = restored.ok_or_else(|| Error::not_found(Subject::Key(id.clone())))?;
    caller.require_on(Action::CreateKey, &api)?;
    apis::require_not_deleted(tx.api(caller.workspace(), &api).await?, &api)?;
    let key = require_existing(&mut tx, caller, id).await?.key;
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add("key.restore", &[target(&key)]);
    entries.write(&mut tx).await?;
    tx.changed(freshness::CacheTag::Key(id.clone()));
    // Replicas may have cached that no key has this hash.
    if let Some(hash) = KeyHash::from_base64(&hash) {
        tx.changed(freshness::CacheTag::NewKey(hash.fingerprint()));
    }
    app.commit(tx).await
}
