//! The snapshot of an API in the audit log, and the change that restores it.

use foundation::error::Result;
use foundation::model::Patch;
use foundation::model::{Api, Networks};
use serde::Serialize;

use super::ApiChange;
use crate::audit::{SnapshotFields, parse_field};

/// The name and the settings of an API, as the audit log stores them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiSnapshot {
    name: String,
    default_prefix: Option<String>,
    default_byte_length: Option<u8>,
    recoverable_keys: bool,
    delete_protection: bool,
    allowed_networks: Vec<String>,
}

impl ApiSnapshot {
    pub fn from_api(api: &Api) -> Self {
        let settings = &api.settings;
        Self {
            name: api.name.clone(),
            default_prefix: settings.default_prefix.clone(),
            default_byte_length: settings.default_byte_length,
            recoverable_keys: settings.allows_recoverable_keys,
            delete_protection: settings.is_delete_protected,
            allowed_networks: settings
                .allowed_networks
                .as_ref()
                .map(Networks::to_strings)
                .unwrap_or_default(),
        }
    }
}

/// Returns the change that restores these fields.
pub fn change_from_snapshot(fields: &SnapshotFields) -> Result<ApiChange> {
    let mut change = ApiChange::default();
    for (name, value) in fields {
        match name.as_str() {
            "name" => change.name = Some(parse_field(value)?),
            "defaultPrefix" => {
                change.default_prefix =
                    Some(parse_field::<Option<String>>(value)?.unwrap_or_default());
            }
            "defaultByteLength" => {
                let length = parse_field::<Option<i64>>(value)?;
                change.default_byte_length = length.map_or(Patch::Clear, Patch::Set);
            }
            "recoverableKeys" => change.recoverable_keys = Some(parse_field(value)?),
            "deleteProtection" => change.delete_protection = Some(parse_field(value)?),
            "allowedNetworks" => {
                change.allowed_networks = Some(parse_field::<Vec<String>>(value)?.join(","));
            }
            _ => {}
        }
    }
    Ok(change)
}
