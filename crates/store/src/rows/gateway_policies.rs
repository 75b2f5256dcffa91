//! Defines rows of gateway policies.

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::{GatewayPolicyId, WorkspaceId};
use foundation::model::GatewayPolicy;
use sqlx_macros::FromRow;

use super::super::{GatewaySecrets, StoredGatewayPolicy};
use super::parse_json;

#[derive(FromRow)]
pub struct GatewayPolicyRow {
    id: GatewayPolicyId,
    workspace_id: WorkspaceId,
    name: String,
    config: String,
    created_at: Timestamp,
    updated_at: Option<Timestamp>,
}

impl TryFrom<GatewayPolicyRow> for GatewayPolicy {
    type Error = Error;

    fn try_from(row: GatewayPolicyRow) -> Result<Self> {
        Ok(Self {
            config: parse_json(&row.config)?,
            id: row.id,
            workspace_id: row.workspace_id,
            name: row.name,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}

#[derive(FromRow)]
pub struct StoredGatewayPolicyRow {
    #[sqlx(flatten)]
    policy: GatewayPolicyRow,
    workspace_enabled: bool,
    secret_hash: String,
    previous_secret_hash: Option<String>,
    previous_secret_expires_at: Option<Timestamp>,
}

impl TryFrom<StoredGatewayPolicyRow> for StoredGatewayPolicy {
    type Error = Error;

    fn try_from(row: StoredGatewayPolicyRow) -> Result<Self> {
        Ok(Self {
            policy: row.policy.try_into()?,
            is_workspace_enabled: row.workspace_enabled,
            secrets: GatewaySecrets {
                hash: row.secret_hash,
                previous: row.previous_secret_hash.zip(row.previous_secret_expires_at),
            },
        })
    }
}
