//! Restoring a deleted key by its id, as an undo of the audit entry of its deletion.

use foundation::error::{Error, ResourceRef, Result};
use foundation::id::{AuditId, KeyId};

use super::{UndoAction, plan_undo, undo};
use crate::caller::Caller;
use crate::keys::{self, Keys};

/// Restores a deleted key. If the audit log has the entry of its deletion, that entry is undone.
pub async fn restore_key(keys: &Keys, caller: &Caller, id: &KeyId) -> Result<()> {
    let deletion = keys::find_deletion(&keys.context, caller, id).await?;
    let deletion = deletion.ok_or_else(|| Error::not_found(ResourceRef::Key(id.clone())))?;
    let restores_key = |entry: &store::StoredEntry| {
        entry.undone_by.is_none() && matches!(plan_undo(entry), Ok(UndoAction::RestoreKey(_)))
    };
    match deletion.entry.filter(restores_key) {
        Some(entry) => undo(keys, caller, &AuditId::from(entry.id)).await.map(drop),
        None => keys::restore(&keys.context, caller, id).await,
    }
}
