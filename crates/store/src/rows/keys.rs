//! Defines rows of keys.

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::{ApiId, IdentityId, KeyId, RoleId, WorkspaceId};
use foundation::model::{Key, Meta};
use sqlx_macros::FromRow;

use super::super::StoredKey;
use super::credits::CreditsRow;
use super::ratelimits::parse_ratelimits;
use super::{parse_home, parse_json, parse_networks, parse_permissions};

#[derive(FromRow)]
pub struct KeyRow {
    id: KeyId,
    workspace_id: WorkspaceId,
    api_id: ApiId,
    hash: String,
    start: String,
    prefix: Option<String>,
    byte_length: i64,
    name: Option<String>,
    meta: Option<String>,
    identity_id: Option<IdentityId>,
    owner_id: Option<String>,
    environment: Option<String>,
    enabled: bool,
    expires_at: Option<Timestamp>,
    #[sqlx(flatten)]
    credits: CreditsRow,
    created_at: Timestamp,
    updated_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    workspace_enabled: bool,
    allowed_networks: Option<String>,
    home: Option<String>,
    ratelimits: String,
    permissions: String,
    role_ids: String,
}

/// A key, and whether the replica that reads it is registered.
#[derive(FromRow)]
pub struct KeyForSpendingRow {
    #[sqlx(flatten)]
    key: KeyRow,
    is_registered: bool,
}

impl TryFrom<KeyForSpendingRow> for StoredKey {
    type Error = Error;

    fn try_from(row: KeyForSpendingRow) -> Result<Self> {
        let mut stored = Self::try_from(row.key)?;
        if let Some(credits) = stored.key.credits.as_mut().filter(|_| !row.is_registered) {
            credits.last_lease_number = 0;
        }
        Ok(stored)
    }
}

impl TryFrom<KeyRow> for StoredKey {
    type Error = Error;

    fn try_from(row: KeyRow) -> Result<Self> {
        Ok(Self {
            ratelimits: parse_ratelimits(&row.ratelimits)?,
            permissions: parse_permissions(&row.permissions)?,
            last_used_at: row.last_used_at,
            refill: row.credits.to_refill(),
            workspace_enabled: row.workspace_enabled,
            allowed_networks: parse_networks(row.allowed_networks.as_deref())?,
            home: parse_home(row.home.as_deref())?,
            role_ids: parse_json::<Vec<String>>(&row.role_ids)?
                .into_iter()
                .map(RoleId::from)
                .collect(),
            key: Key {
                id: row.id,
                workspace_id: row.workspace_id,
                api_id: row.api_id,
                hash: row.hash,
                start: row.start,
                prefix: row.prefix,
                byte_length: u8::try_from(row.byte_length).unwrap_or(u8::MAX),
                name: row.name,
                meta: row.meta.and_then(Meta::from_stored),
                identity_id: row.identity_id,
                owner_id: row.owner_id,
                environment: row.environment,
                is_enabled: row.enabled,
                expires_at: row.expires_at,
                credits: row.credits.into_credits(),
                created_at: row.created_at,
                updated_at: row.updated_at,
            },
        })
    }
}
