//! Deleting a key.

use super::super::audit::Entries;
use super::super::caller::Caller;
use super::super::permission::Action;
use super::{existing, target};
use crate::app::App;
use crate::error::Result;
use crate::id::KeyId;
use crate::store::freshness;
use serde_json::{Value, json};

/// How much of a key goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// It stops verifying; its row stays, and its hash stays taken.
    Soft,
    /// Everything.
    Permanent,
}

impl Deletion {
    /// As the audit log tells it.
    pub fn told(self) -> Value {
        json!({ "permanent": self == Self::Permanent })
    }
}

/// Deletes a key; it stops verifying at once.
pub async fn delete(app: &App, caller: &Caller, id: &KeyId, deletion: Deletion) -> Result<()> {
    let now = app.clock.now();

    let mut tx = app.store.begin().await?;
    let key = existing(&mut tx, caller, id).await?.key;
    caller.require_on(Action::DeleteKey, &key.api_id)?;
    match deletion {
        Deletion::Soft => tx.delete_key(id, now).await?,
        Deletion::Permanent => tx.purge_key(id).await?,
    }
    let mut entries = Entries::of(caller, now);
    entries.add("key.delete", &[target(&key).told(deletion.told())]);
    entries.write(&mut tx).await?;
    tx.changed(freshness::Subject::Key(id.clone()));
    app.commit(tx).await
}
