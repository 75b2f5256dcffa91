//! The snapshots of namespaces and overrides in the audit log.

use foundation::clock::Timestamp;
use foundation::model::{Namespace, Override};
use serde::{Deserialize, Serialize};

use super::overrides::NewOverride;

/// The fields of a namespace, as the audit log stores them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSnapshot<'a> {
    name: &'a str,
    on_outage: &'static str,
}

impl<'a> NamespaceSnapshot<'a> {
    pub fn from_namespace(namespace: &'a Namespace) -> Self {
        Self { name: &namespace.name, on_outage: namespace.outage_policy.as_str() }
    }
}

/// The fields of an override, as the audit log stores them. Entries always contain all fields, because setting an
/// override replaces the previous one.
#[derive(Debug, Serialize, Deserialize)]
pub struct OverrideSnapshot {
    identifier: String,
    limit: i64,
    /// In milliseconds.
    duration: i64,
    expires: Option<i64>,
    #[serde(rename = "async")]
    is_async: bool,
}

impl OverrideSnapshot {
    pub fn from_override(stored: &Override) -> Self {
        Self {
            identifier: stored.identifier.clone(),
            limit: stored.limit,
            duration: stored.duration_ms,
            expires: stored.expires_at.map(|at| at.0),
            is_async: stored.is_approximate,
        }
    }

    /// Returns the request that would set this override in the namespace with this id.
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
