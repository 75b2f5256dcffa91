//! The names of keys, for rows that know keys by their ids.

use std::collections::HashMap;

use domain::keys::{self, KeyLabel};
use foundation::error::Result;
use foundation::id::KeyId;

use super::format::format_start;
use super::page_request::WorkspaceRequest;

/// The names of the keys of a page.
pub struct KeyNames(HashMap<KeyId, KeyLabel>);

impl KeyNames {
    /// Loads the names of these keys in one lookup.
    pub async fn load(request: &WorkspaceRequest, ids: Vec<KeyId>) -> Result<Self> {
        let context = &request.page_request.app.context;
        Ok(Self(keys::load_labels(context, &request.caller, &ids).await?))
    }

    /// Returns the name of a key. `None`: it has none, or is deleted.
    pub fn name(&self, id: &KeyId) -> Option<&str> {
        self.0.get(id)?.name.as_deref()
    }

    /// Returns the name of a key, else its start. A deleted key, and one whose start is unknown, is called by its id.
    pub fn label(&self, id: &KeyId) -> String {
        match self.0.get(id) {
            Some(KeyLabel { name: Some(name), .. }) => name.clone(),
            Some(KeyLabel { name: None, start }) => format_start(start, id),
            None => id.to_string(),
        }
    }
}
