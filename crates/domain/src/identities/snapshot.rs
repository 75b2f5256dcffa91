//! The snapshot of an identity in the audit log, and the change that restores it.

use foundation::error::Result;
use foundation::home::Home;
use foundation::model::{Identity, Meta};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::IdentityChange;
use crate::audit::{SnapshotFields, parse_field};
use crate::keys::{NewRatelimit, limits_snapshot};

/// The metadata to which an identity without metadata is restored: metadata can be changed but not removed.
const EMPTY_META: &str = "{}";

/// The fields of an identity, as the audit log stores them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentitySnapshot {
    pub external_id: String,
    pub meta: Option<Box<RawValue>>,
    pub ratelimits: Vec<NewRatelimit>,
    /// Absent: the first region, or the snapshot of a version before regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// The ids of the keys that had it when it was deleted. Absent: it was not deleted, or by a version that did not
    /// record them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
}

impl IdentitySnapshot {
    pub fn from_identity(identity: &Identity) -> Self {
        Self {
            external_id: identity.external_id.clone(),
            meta: identity.meta.clone().map(|Meta(meta)| meta),
            ratelimits: limits_snapshot(&identity.ratelimits),
            home: identity.home.as_ref().map(Home::to_string),
            keys: None,
        }
    }
}

/// Returns the change that restores these fields.
pub fn change_from_snapshot(fields: &SnapshotFields) -> Result<IdentityChange> {
    let mut change = IdentityChange::default();
    for (name, value) in fields {
        match name.as_str() {
            "meta" => {
                let meta = parse_field::<Option<Box<RawValue>>>(value)?.map(Meta);
                change.meta = meta.or_else(|| Meta::from_stored(EMPTY_META.to_owned()));
            }
            "ratelimits" => change.ratelimits = Some(parse_field(value)?),
            _ => {}
        }
    }
    Ok(change)
}
