//! Namespaces and overrides as the audit log keeps them.

use foundation::clock::Timestamp;
use foundation::model::{Namespace, Override};
use serde::{Deserialize, Serialize};

use super::overrides::NewOverride;

/// A namespace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSnapshot<'a> {
    name: &'a str,
    on_outage: &'static str,
}

impl<'a> NamespaceSnapshot<'a> {
    pub fn of(namespace: &'a Namespace) -> Self {
        Self { name: &namespace.name, on_outage: namespace.on_outage.as_str() }
    }
}

/// An override; whole in every entry, because what is set replaces what was.
#[derive(Debug, Serialize, Deserialize)]
pub struct OverrideState {
    identifier: String,
    limit: i64,
    /// In milliseconds.
    duration: i64,
    expires: Option<i64>,
    #[serde(rename = "async")]
    is_async: bool,
}

impl OverrideState {
    pub fn of(known: &Override) -> Self {
        Self {
            identifier: known.identifier.clone(),
            limit: known.limit,
            duration: known.duration_ms,
            expires: known.expires_at.map(|at| at.0),
            is_async: known.is_async,
        }
    }

    /// As it would be asked for, in the namespace of this id.
    pub fn into_new_override(self, namespace: String) -> NewOverride {
        NewOverride {
            namespace,
            identifier: self.identifier,
            limit: self.limit,
            duration_ms: self.duration,
            expires_at: self.expires.map(Timestamp),
            is_async: self.is_async,
        }
    }
}
