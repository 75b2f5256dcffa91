//! The labels of keys, for lists that know keys by their ids.

use std::collections::HashMap;

use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::KeySummary;

use crate::caller::Caller;
use crate::context::Context;
use crate::permission::Action;

/// How a key is called in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLabel {
    pub name: Option<String>,
    /// The start of the key; empty if it is unknown.
    pub start: String,
}

/// Returns the labels of these keys in one lookup, without those of deleted keys.
pub async fn load_labels(
    context: &Context,
    caller: &Caller,
    ids: &[KeyId],
) -> Result<HashMap<KeyId, KeyLabel>> {
    caller.require(Action::ReadKey)?;
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let mut reader = context.store.read().await?;
    let found = reader.list_keys_by_ids(caller.workspace_id(), ids).await?;
    let label = |key: KeySummary| (key.id, KeyLabel { name: key.name, start: key.start });
    Ok(found.into_iter().map(label).collect())
}
