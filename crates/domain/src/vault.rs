//! Recoverable keys: sealed when they are issued, unsealed for a caller with the permission.

use std::collections::HashMap;

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, Result};
use foundation::id::{KeyId, WorkspaceId};
use foundation::secret::Plaintext;
use foundation::vault::{DataKey, MasterKeys, SealedDataKey, reseal};
use store::{Reads, Store, Tx};

use crate::audit::{self, Actor, AuditEvent, Target};
use crate::context::Context;

/// Returns the master keys, or an error if none is configured.
pub fn require_master_keys(context: &Context) -> Result<std::sync::Arc<MasterKeys>> {
    context.master_keys.load_full().ok_or(Error::PreconditionFailed(Refusal::NoMasterKey))
}

/// Stores sealed copies of keys that are being issued or imported.
pub async fn seal(
    context: &Context,
    tx: &mut Tx,
    workspace: &WorkspaceId,
    secrets: &[(&KeyId, &Plaintext)],
    now: Timestamp,
) -> Result<()> {
    if secrets.is_empty() {
        return Ok(());
    }
    let stored = match tx.find_data_key(workspace).await? {
        Some(stored) => Some(stored),
        None => {
            // Another process may be about to remove the master key that this one has loaded.
            context.reload_master_keys();
            let data_key =
                DataKey::generate_sealed(&require_master_keys(context)?.current_key, workspace);
            tx.insert_data_key(&data_key, now).await?;
            // Read it again: if two transactions create one at the same time, the second finds that of the first.
            tx.find_data_key(workspace).await?
        }
    };
    let stored = stored.ok_or_else(|| Error::Internal("the data key was not stored".into()))?;
    let data_key = open_data_key(context, &stored)?;
    let sealed = secrets.iter().map(|(id, secret)| ((*id).clone(), data_key.seal(id, secret)));
    tx.insert_sealed_keys(workspace, &sealed.collect::<Vec<_>>()).await
}

/// Returns the plaintexts of those of the given keys that are recoverable. A key that fails to decrypt is left out
/// and logged.
pub async fn unseal(
    context: &Context,
    reader: &mut dyn Reads,
    workspace: &WorkspaceId,
    keys: &[KeyId],
) -> Result<HashMap<KeyId, Plaintext>> {
    let sealed = reader.list_sealed_keys(workspace, keys).await?;
    if sealed.is_empty() {
        return Ok(HashMap::new());
    }
    let stored = reader.find_data_key(workspace).await?;
    let stored = stored.ok_or_else(|| Error::Internal("a sealed key has no data key".into()))?;
    let data_key = open_data_key(context, &stored)?;
    let open = |(key, sealed): (KeyId, String)| match data_key.unseal(&key, &sealed) {
        Some(secret) => Some((key, secret)),
        None => {
            tracing::error!(key.id = %key, "failed to unseal key {key}");
            None
        }
    };
    Ok(sealed.into_iter().filter_map(open).collect())
}

fn open_data_key(context: &Context, stored: &SealedDataKey) -> Result<DataKey> {
    let opened = DataKey::open(&*require_master_keys(context)?, stored);
    // Another process may have rotated the master key since this one read it.
    let opened = match opened {
        None if context.reload_master_keys() => {
            DataKey::open(&*require_master_keys(context)?, stored)
        }
        opened => opened,
    };
    opened.ok_or_else(|| {
        let (workspace, master) = (&stored.workspace_id, &stored.master_id);
        Error::Internal(format!(
            "the data key of workspace {workspace} is sealed with master key {master}, which is not configured"
        ))
    })
}

/// Lists the data keys that none of the given master keys decrypts. Without this check, recoverable keys would be
/// lost without notice.
pub async fn list_undecryptable_data_keys(
    store: &Store,
    masters: Option<&MasterKeys>,
) -> Result<Vec<SealedDataKey>> {
    let stored = store.read().await?.list_data_keys().await?;
    let can_decrypt =
        |stored: &SealedDataKey| masters.is_some_and(|m| DataKey::open(m, stored).is_some());
    Ok(stored.into_iter().filter(|stored| !can_decrypt(stored)).collect())
}

/// Seals every data key with the current master key. Returns the number of keys that were sealed with another one.
pub async fn reseal_data_keys(context: &Context, masters: &MasterKeys) -> Result<usize> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let mut rotated = 0;
    for stored in tx.list_data_keys().await? {
        if stored.master_id == masters.current_key.id {
            continue;
        }
        let error = || Error::Internal(format!("no master key decrypts data key {}", stored.id));
        tx.reseal_data_key(&reseal(masters, &stored).ok_or_else(error)?).await?;
        let target = Target::new("workspace", stored.workspace_id.as_str());
        let (actor, event) = (Actor::Command("cli"), AuditEvent::VaultRotated);
        audit::record(&mut tx, actor, &stored.workspace_id, now, event, &[target]).await?;
        rotated += 1;
    }
    context.commit(tx).await?;
    Ok(rotated)
}
