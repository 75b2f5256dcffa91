//! Recoverable keys: sealed when they are issued, unsealed for a caller with the permission; and the master key, which seals
//! signing keys, too.

use std::collections::HashMap;

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, Result};
use foundation::id::{KeyId, WorkspaceId};
use foundation::secret::Plaintext;
use foundation::vault::{DataKey, MasterKeys, SealedDataKey, SealedSigningKey, reseal};
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

/// What none of the master keys of a server decrypts.
#[derive(Debug, Default)]
pub struct Undecryptable {
    pub data_keys: Vec<SealedDataKey>,
    pub signing_keys: Vec<SealedSigningKey>,
}

impl Undecryptable {
    /// Returns the ID of a master key that would decrypt some of it. `None`: there is nothing.
    pub fn missing_master_id(&self) -> Option<&str> {
        let data_keys = self.data_keys.iter().map(|stored| &stored.master_id);
        let signing_keys = self.signing_keys.iter().map(|stored| &stored.master_id);
        data_keys.chain(signing_keys).next().map(String::as_str)
    }
}

/// Lists the data keys and signing keys that none of the given master keys decrypts. Without this check, recoverable keys
/// would be lost without notice.
pub async fn list_undecryptable(
    store: &Store,
    masters: Option<&MasterKeys>,
) -> Result<Undecryptable> {
    let mut reader = store.read().await?;
    let mut data_keys = reader.list_data_keys().await?;
    data_keys.retain(|stored| masters.is_none_or(|m| DataKey::open(m, stored).is_none()));
    let signing_keys = reader.list_signing_keys().await?.into_iter().map(|stored| stored.key);
    let is_undecryptable =
        |stored: &SealedSigningKey| masters.is_none_or(|m| stored.open(m).is_none());
    Ok(Undecryptable { data_keys, signing_keys: signing_keys.filter(is_undecryptable).collect() })
}

/// The number of keys that were sealed with another master key.
#[derive(Debug, Default)]
pub struct Resealed {
    pub data_keys: usize,
    pub signing_keys: usize,
}

/// Seals every data key and signing key with the current master key.
pub async fn reseal_all(context: &Context, masters: &MasterKeys) -> Result<Resealed> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let mut resealed = Resealed::default();
    for stored in tx.lock_signing_keys().await? {
        if stored.key.master_id == masters.current_key.id {
            continue;
        }
        let id = &stored.key.id;
        let error = || Error::Internal(format!("no master key decrypts signing key {id}"));
        tx.reseal_signing_key(&stored.key.reseal(masters).ok_or_else(error)?).await?;
        resealed.signing_keys += 1;
    }
    for stored in tx.list_data_keys().await? {
        if stored.master_id == masters.current_key.id {
            continue;
        }
        let error = || Error::Internal(format!("no master key decrypts data key {}", stored.id));
        tx.reseal_data_key(&reseal(masters, &stored).ok_or_else(error)?).await?;
        let target = Target::new("workspace", stored.workspace_id.as_str());
        let (actor, event) = (Actor::Command("cli"), AuditEvent::VaultRotated);
        audit::record(&mut tx, actor, &stored.workspace_id, now, event, &[target]).await?;
        resealed.data_keys += 1;
    }
    context.commit(tx).await?;
    Ok(resealed)
}
