//! Removing the keys of an import.

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, ResourceRef, Result};
use foundation::id::{ApiId, MigrationId};
use serde::Serialize;
use store::freshness;

use super::Keys;
use super::migrate::import_targets;
use crate::audit::{AuditBatch, AuditEvent, FieldChanges};
use crate::caller::Caller;
use crate::permission::Action;
use crate::{apis, last_used};

/// The fields of the audit entry.
#[derive(Serialize)]
struct RemovedKeys {
    keys: usize,
}

/// Removes the keys that an import created at `imported_at`, and that were neither used nor deleted since, permanently: a
/// key that is only marked as deleted would keep its hash, so the corrected file could not be imported. Used keys remain,
/// because callers rely on them. A use is known after 30 seconds at the latest, on this replica at once.
/// So a command, which verifies nothing itself, waits that long before.
pub async fn remove_import(
    keys: &Keys,
    caller: &Caller,
    migration: &MigrationId,
    api_id: &ApiId,
    imported_at: Timestamp,
) -> Result<()> {
    caller.require_on(Action::DeleteKey, api_id)?;
    last_used::flush(&keys.last_used).await?;
    let (context, workspace) = (&keys.context, caller.workspace_id());
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let api = apis::require_not_deleted(tx.find_api(workspace, api_id).await?, api_id)?;
    let found = tx.find_migration(workspace, migration).await?;
    let found = found.ok_or_else(|| Error::not_found(ResourceRef::Migration(migration.clone())))?;
    let removed = tx.remove_unused_keys(workspace, migration, api_id, imported_at).await?;
    let Ok(count @ 1..) = i64::try_from(removed.len()) else {
        let reason = "every key of the import was used or deleted since";
        return Err(Error::PreconditionFailed(Refusal::NotUndoable(reason)));
    };
    tx.add_imported_count(migration, -count).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let change = FieldChanges::deleted(&RemovedKeys { keys: removed.len() })?;
    let targets = import_targets(&found, &api);
    entries.add_change(AuditEvent::ImportedKeysRemoved, &targets, change);
    entries.write(&mut tx).await?;
    for id in removed {
        tx.record_change(freshness::CacheTag::Key(id));
    }
    context.commit(tx).await
}
