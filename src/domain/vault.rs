//! Recoverable keys: sealed when they are issued, opened when somebody who may asks.

use std::collections::HashMap;

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, Result};
use foundation::id::{KeyId, WorkspaceId};
use foundation::secret::Plaintext;
use foundation::vault::{DataKey, MasterKeys, SealedDataKey, resealed};
use store::{Reads, Store, Tx};

use super::audit::{self, Actor, Target};
use crate::app::App;

/// The master keys; without any there is no vault.
pub fn require_master_keys(app: &App) -> Result<std::sync::Arc<MasterKeys>> {
    app.master_keys.load_full().ok_or(Error::Refused(Refusal::NoVault))
}

/// Keeps sealed copies of keys that are being issued or taken in.
pub async fn seal(
    app: &App,
    tx: &mut Tx,
    workspace: &WorkspaceId,
    secrets: &[(&KeyId, &Plaintext)],
    now: Timestamp,
) -> Result<()> {
    if secrets.is_empty() {
        return Ok(());
    }
    let kept = match tx.data_key(workspace).await? {
        Some(kept) => Some(kept),
        None => {
            // Another process may be about to take away the master key that this one knows.
            app.reload_master_keys();
            let data_key = DataKey::random(&require_master_keys(app)?.current, workspace);
            tx.insert_data_key(&data_key, now).await?;
            // Read again: of two that make one at once, the second finds the first one's.
            tx.data_key(workspace).await?
        }
    };
    let kept = kept.ok_or_else(|| Error::Internal("the data key was not kept".into()))?;
    let data_key = open(app, &kept)?;
    let sealed = secrets.iter().map(|(id, secret)| ((*id).clone(), data_key.seal(id, secret)));
    tx.insert_sealed_keys(workspace, &sealed.collect::<Vec<_>>()).await
}

/// Of these keys the plaintexts of those that are recoverable. One that does not open is left out, and a
/// line of the log says so.
pub async fn unseal(
    app: &App,
    reader: &mut dyn Reads,
    workspace: &WorkspaceId,
    keys: &[KeyId],
) -> Result<HashMap<KeyId, Plaintext>> {
    let sealed = reader.sealed_keys(workspace, keys).await?;
    if sealed.is_empty() {
        return Ok(HashMap::new());
    }
    let kept = reader.data_key(workspace).await?;
    let kept = kept.ok_or_else(|| Error::Internal("a sealed key has no data key".into()))?;
    let data_key = open(app, &kept)?;
    let open = |(key, sealed): (KeyId, String)| match data_key.unseal(&key, &sealed) {
        Some(secret) => Some((key, secret)),
        None => {
            tracing::error!(key.id = %key, "the sealed copy of key {key} does not open");
            None
        }
    };
    Ok(sealed.into_iter().filter_map(open).collect())
}

fn open(app: &App, kept: &SealedDataKey) -> Result<DataKey> {
    let opened = DataKey::open(&*require_master_keys(app)?, kept);
    // Another process may have rotated the master key since this one read it.
    let opened = match opened {
        None if app.reload_master_keys() => DataKey::open(&*require_master_keys(app)?, kept),
        opened => opened,
    };
    opened.ok_or_else(|| {
        let (workspace, master) = (&kept.workspace_id, &kept.master_id);
        Error::Internal(format!(
            "the data key of workspace {workspace} was sealed with master key {master}, which is not here"
        ))
    })
}

/// The data keys that none of these master keys opens: recoverable keys would be lost without a word.
pub async fn list_undecryptable_data_keys(
    store: &Store,
    masters: Option<&MasterKeys>,
) -> Result<Vec<SealedDataKey>> {
    let kept = store.read().await?.data_keys().await?;
    let opens = |kept: &SealedDataKey| masters.is_some_and(|m| DataKey::open(m, kept).is_some());
    Ok(kept.into_iter().filter(|kept| !opens(kept)).collect())
}

/// Seals every data key with the current master key; how many were sealed with another one.
pub async fn rotate(app: &App, masters: &MasterKeys) -> Result<usize> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let mut rotated = 0;
    for kept in tx.data_keys().await? {
        if kept.master_id == masters.current.id {
            continue;
        }
        let fault = || Error::Internal(format!("no master key opens data key {}", kept.id));
        tx.reseal_data_key(&resealed(masters, &kept).ok_or_else(fault)?).await?;
        let target = Target::new("workspace", kept.workspace_id.as_str());
        let actor = Actor::Command("cli");
        audit::record(&mut tx, actor, &kept.workspace_id, now, "vault.rotate", &[target]).await?;
        rotated += 1;
    }
    app.commit(tx).await?;
    Ok(rotated)
}
