//! Looking at a key without using it.

use std::collections::HashMap;
use std::sync::Arc;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result, Subject};
use foundation::id::KeyId;
use foundation::model::{Api, Refill};
use foundation::secret::{KeyHash, Plaintext};
use futures_util::FutureExt as _;
use store::StoredKey;
use store::cache::Cached;

use super::super::audit::AuditBatch;
use super::super::caller::Caller;
use super::super::permission::Action;
use super::super::{apis, credits, refill, vault};
use super::create::may_be_recovered;
use super::resolved::{self, ResolvedKey};
use super::target;
use crate::app::App;

/// A key and what hangs on it.
#[derive(Debug)]
pub struct FoundKey {
    pub view: ResolvedKey,
    /// What is left, bank and purse, and when it comes back. Absent: unlimited.
    pub credits: Option<(i64, Option<Refill>)>,
    /// When its credits last came back, as far as it can be told.
    pub refilled_at: Option<Timestamp>,
    /// The key itself, where it is recoverable and was asked for.
    pub plaintext: Option<Plaintext>,
}

/// Whether plaintexts are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecryptMode {
    None,
    /// Of recoverable keys; it is an error where the API keeps none.
    Required,
    /// Of recoverable keys, where there are any.
    IfAvailable,
}

/// The key of this id, disabled and expired ones too.
pub async fn get(app: &App, caller: &Caller, id: &KeyId, wanted: DecryptMode) -> Result<FoundKey> {
    let stamp = app.freshness.read_version();
    let stored = app.store.read().await?.key(caller.workspace(), id).await?;
    let stored = stored.ok_or_else(|| Error::not_found(Subject::Key(id.clone())))?;
    caller.require_on(Action::ReadKey, &stored.key.api_id)?;
    let mut plaintexts = decrypted(app, caller, std::slice::from_ref(&stored), wanted).await?;
    let found = found(app, Cached::new(stored, stamp, [])).boxed().await?;
    Ok(FoundKey { plaintext: plaintexts.remove(id), ..found })
}

/// The plaintexts of those of an API's keys that are recoverable; who has read them is recorded first.
pub async fn decrypted(
    app: &App,
    caller: &Caller,
    stored: &[StoredKey],
    wanted: DecryptMode,
) -> Result<HashMap<KeyId, Plaintext>> {
    let Some(first) = stored.first() else { return Ok(HashMap::new()) };
    if wanted == DecryptMode::None {
        return Ok(HashMap::new());
    }
    let api_id = &first.key.api_id;
    let mut tx = app.store.begin().await?;
    let api = apis::require_not_deleted(tx.api(caller.workspace(), api_id).await?, api_id)?;
    if !may_decrypt(app, caller, &api, wanted)? {
        return Ok(HashMap::new());
    }
    let ids: Vec<_> = stored.iter().map(|stored| stored.key.id.clone()).collect();
    let plaintexts = vault::unseal(app, &mut *tx, caller.workspace(), &ids).await?;
    let mut entries = AuditBatch::for_caller(caller, app.clock.now());
    for stored in stored.iter().filter(|stored| plaintexts.contains_key(&stored.key.id)) {
        entries.add("key.decrypt", &[target(&stored.key)]);
    }
    entries.write(&mut tx).await?;
    app.commit(tx).await?;
    Ok(plaintexts)
}

/// Whether there can be plaintexts to read; fails unless the root key may read those of the API.
pub fn may_decrypt(app: &App, caller: &Caller, api: &Api, wanted: DecryptMode) -> Result<bool> {
    let there_are = vault::require_master_keys(app).map(drop);
    let kept = may_be_recovered(api);
    match wanted {
        DecryptMode::None => Ok(false),
        DecryptMode::Required => {
            there_are?;
            caller.require_on(Action::DecryptKey, &api.id)?;
            kept.map(|()| true)
        }
        DecryptMode::IfAvailable => {
            caller.require_on(Action::DecryptKey, &api.id)?;
            Ok(there_are.is_ok() && kept.is_ok())
        }
    }
}

/// The key itself was shown: which is it? Who may not know is told that there is none.
pub async fn whoami(app: &App, caller: &Caller, key: &str) -> Result<FoundKey> {
    let stamp = app.freshness.read_version();
    let stored = app.store.read().await?.key_by_hash(&KeyHash::of(key).base64()).await?;
    let stored = stored
        .filter(|stored| stored.key.workspace_id == *caller.workspace())
        .filter(|stored| caller.may_on(Action::ReadKey, &stored.key.api_id))
        .ok_or_else(|| Error::not_found(Subject::Secret))?;
    found(app, Cached::new(stored, stamp, [])).boxed().await
}

async fn found(app: &App, row: Cached<StoredKey>) -> Result<FoundKey> {
    let (view, _) = resolved::resolve(app, Arc::new(row)).await?;
    let key = &view.stored().key;
    let left = credits::balance(app, &view).await?;
    let refill = key.credits.and_then(|credits| credits.refill);
    let refilled_at = refill::last_refill_at(key, app.clock.now());
    Ok(FoundKey { credits: left.map(|left| (left, refill)), refilled_at, view, plaintext: None })
}
