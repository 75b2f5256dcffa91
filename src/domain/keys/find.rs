//! Looking at a key without using it.

use std::sync::Arc;

use super::super::caller::Caller;
use super::super::credits;
use super::super::permission::Action;
use super::view::{self, View};
use crate::app::App;
use crate::error::{Error, Refusal, Result, Subject};
use crate::id::KeyId;
use crate::model::Refill;
use crate::secret::KeyHash;
use crate::store::StoredKey;
use crate::store::cache::Cached;

/// A key and what hangs on it.
#[derive(Debug)]
pub struct Found {
    pub view: View,
    /// What is left, bank and purse, and when it comes back. Absent: unlimited.
    pub credits: Option<(i64, Option<Refill>)>,
}

/// The key of this id, disabled and expired ones too. `decrypt`: with its plaintext.
pub async fn get(app: &App, caller: &Caller, id: &KeyId, decrypt: bool) -> Result<Found> {
    let stamp = app.freshness.stamp();
    let stored = app.store.read().await?.key(caller.workspace(), id).await?;
    let stored = stored.ok_or_else(|| Error::not_found(Subject::Key(id.clone())))?;
    caller.require_on(Action::ReadKey, &stored.key.api_id)?;
    if decrypt {
        return Err(Error::Refused(Refusal::NoVault));
    }
    Box::pin(found(app, Cached::new(stored, stamp, []))).await
}

/// The key itself was shown: which is it? Who may not know is told that there is none.
pub async fn whoami(app: &App, caller: &Caller, key: &str) -> Result<Found> {
    let stamp = app.freshness.stamp();
    let stored = app.store.read().await?.key_by_hash(&KeyHash::of(key).base64()).await?;
    let stored = stored
        .filter(|stored| stored.key.workspace_id == *caller.workspace())
        .filter(|stored| caller.may_on(Action::ReadKey, &stored.key.api_id))
        .ok_or_else(|| Error::not_found(Subject::Secret))?;
    Box::pin(found(app, Cached::new(stored, stamp, []))).await
}

async fn found(app: &App, row: Cached<StoredKey>) -> Result<Found> {
    let (view, _) = view::assemble(app, Arc::new(row)).await?;
    let key = &view.stored().key;
    let left = credits::balance(app, &view).await?;
    let refill = key.credits.and_then(|credits| credits.refill);
    Ok(Found { credits: left.map(|left| (left, refill)), view })
}
