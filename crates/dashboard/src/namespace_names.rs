//! The names of namespaces, for rows that know namespaces by their ids.

use std::collections::HashMap;

use domain::ratelimits::namespaces;
use foundation::error::Result;
use foundation::id::NamespaceId;

use super::page_request::WorkspaceRequest;

/// The names of the namespaces of a page, without deleted ones.
pub struct NamespaceNames(HashMap<NamespaceId, String>);

impl NamespaceNames {
    /// Loads the names of these namespaces in one lookup.
    pub async fn load(request: &WorkspaceRequest, mut ids: Vec<NamespaceId>) -> Result<Self> {
        ids.sort_unstable();
        ids.dedup();
        let context = &request.page_request.app.context;
        Ok(Self(namespaces::load_names(context, &request.caller, &ids).await?))
    }

    /// Returns the name of a namespace. `None`: it is deleted.
    pub fn name(&self, id: &str) -> Option<&str> {
        self.0.get(&NamespaceId::from(id)).map(String::as_str)
    }

    /// Returns the name of a namespace, or its id if it is deleted.
    pub fn label(&self, id: &str) -> String {
        self.name(id).unwrap_or(id).to_owned()
    }
}
