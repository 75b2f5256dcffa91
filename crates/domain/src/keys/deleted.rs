//! Deleted keys: who deleted them and when.

use foundation::error::Result;
use foundation::id::KeyId;
use foundation::secret::KeyHash;
use store::{DeletedKey, StoredEntry};

use crate::audit::AuditEvent;
use crate::caller::Caller;
use crate::context::Context;
use crate::permission::Action;

/// A deleted key, and the audit entry of its deletion.
#[derive(Debug)]
pub struct KeyDeletion {
    pub key: DeletedKey,
    /// The entry that deleted the key, or its API if the key itself is not deleted. `None` if there is none.
    pub entry: Option<StoredEntry>,
}

/// Finds a deleted key by id.
pub async fn find_deletion(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
) -> Result<Option<KeyDeletion>> {
    find(context, caller, id.as_str(), "").await
}

/// Finds a deleted key by its plaintext.
pub async fn find_deletion_by_key(
    context: &Context,
    caller: &Caller,
    key: &str,
) -> Result<Option<KeyDeletion>> {
    find(context, caller, "", &KeyHash::compute(key).to_base64()).await
}

/// Without the permission to read the key, it is not found.
async fn find(
    context: &Context,
    caller: &Caller,
    id: &str,
    hash: &str,
) -> Result<Option<KeyDeletion>> {
    let workspace = caller.workspace_id();
    let mut reader = context.store.read().await?;
    let found = reader.find_deleted_key(workspace, id, hash).await?;
    let found = found.filter(|key| caller.is_allowed_on(Action::ReadKey, &key.api_id));
    let Some(key) = found else { return Ok(None) };
    let (event, at, target) = match key.deleted_at {
        Some(at) => (AuditEvent::KeyDeleted, Some(at), key.id.as_str()),
        None => (AuditEvent::ApiDeleted, key.api_deleted_at, key.api_id.as_str()),
    };
    let entry = match at {
        Some(at) if caller.is_allowed(Action::ReadAudit) => {
            reader.find_entry_at(workspace, event.as_str(), at, target).await?
        }
        Some(_) | None => None,
    };
    Ok(Some(KeyDeletion { key, entry }))
}

impl KeyDeletion {
    /// Returns whether the key alone can be restored. If its API is deleted, the API has to be restored first.
    pub fn is_restorable(&self) -> bool {
        self.key.deleted_at.is_some() && self.key.api_deleted_at.is_none()
    }
}
