//! Defines the rows that queries return, and converts them to the types of `model`.

mod credits;
mod permission_holders;
mod users;

use credits::CreditsRow;
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::{
    ApiId, IdentityId, KeyId, MigrationId, NamespaceId, OverrideId, PermissionId, RatelimitId,
    RoleId, WorkspaceId,
};
use foundation::model::{
    Api, ApiSettings, Identity, Key, Meta, Migration, Namespace, Networks, Override, Overrides,
    Permission, Ratelimit, Role, RootKey,
};
use serde::{Deserialize, Deserializer};
use sqlx::FromRow;

use super::{StoredKey, StoredMigration, StoredNamespace, StoredRootKey};
pub use credits::{AccountRow, KeyAccountRow, KeyCreditsRow};
pub use permission_holders::AssignmentRow;
pub use users::{SessionRow, UserWithPasswordRow};

#[derive(FromRow)]
pub struct RootKeyRow {
    id: KeyId,
    workspace_id: WorkspaceId,
    workspace_enabled: bool,
    start: String,
    name: Option<String>,
    permissions: String,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
}

impl TryFrom<RootKeyRow> for RootKey {
    type Error = Error;

    fn try_from(row: RootKeyRow) -> Result<Self> {
        Ok(Self {
            permissions: parse_json(&row.permissions)?,
            id: row.id,
            workspace_id: row.workspace_id,
            is_workspace_enabled: row.workspace_enabled,
            start: row.start,
            name: row.name,
            created_at: row.created_at,
            expires_at: row.expires_at,
            revoked_at: row.revoked_at,
        })
    }
}

#[derive(FromRow)]
pub struct StoredRootKeyRow {
    #[sqlx(flatten)]
    key: RootKeyRow,
    last_used_at: Option<Timestamp>,
}

impl TryFrom<StoredRootKeyRow> for StoredRootKey {
    type Error = Error;

    fn try_from(row: StoredRootKeyRow) -> Result<Self> {
        Ok(Self { key: row.key.try_into()?, last_used_at: row.last_used_at })
    }
}

#[derive(FromRow)]
pub struct ApiRow {
    id: ApiId,
    workspace_id: WorkspaceId,
    name: String,
    default_prefix: Option<String>,
    default_byte_length: Option<i64>,
    recoverable_keys: bool,
    delete_protection: bool,
    allowed_networks: Option<String>,
    created_at: Timestamp,
    deleted_at: Option<Timestamp>,
}

impl TryFrom<ApiRow> for Api {
    type Error = Error;

    fn try_from(row: ApiRow) -> Result<Self> {
        let length = row.default_byte_length.and_then(|length| u8::try_from(length).ok());
        Ok(Self {
            settings: ApiSettings {
                default_prefix: row.default_prefix,
                default_byte_length: length,
                allows_recoverable_keys: row.recoverable_keys,
                is_delete_protected: row.delete_protection,
                allowed_networks: parse_networks(row.allowed_networks.as_deref())?,
            },
            id: row.id,
            workspace_id: row.workspace_id,
            name: row.name,
            created_at: row.created_at,
            deleted_at: row.deleted_at,
        })
    }
}

fn parse_networks(list: Option<&str>) -> Result<Option<Networks>> {
    let Some(list) = list else { return Ok(None) };
    let networks: Vec<String> = parse_json(list)?;
    let networks = Networks::parse(&networks.join(",")).map_err(Error::Internal)?;
    Ok(Networks::new(networks))
}

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

#[derive(FromRow)]
pub struct IdentityRow {
    id: IdentityId,
    external_id: String,
    meta: Option<String>,
    ratelimits: String,
}

impl TryFrom<IdentityRow> for Identity {
    type Error = Error;

    fn try_from(row: IdentityRow) -> Result<Self> {
        Ok(Self {
            ratelimits: parse_ratelimits(&row.ratelimits)?,
            id: row.id,
            external_id: row.external_id,
            meta: row.meta.and_then(Meta::from_stored),
        })
    }
}

#[derive(FromRow)]
pub struct RoleRow {
    id: RoleId,
    name: String,
    description: Option<String>,
    permissions: String,
}

impl TryFrom<RoleRow> for Role {
    type Error = Error;

    fn try_from(row: RoleRow) -> Result<Self> {
        Ok(Self {
            permissions: parse_permissions(&row.permissions)?,
            id: row.id,
            name: row.name,
            description: row.description,
        })
    }
}

#[derive(FromRow, Deserialize)]
pub struct PermissionRow {
    id: String,
    slug: String,
    name: String,
    description: Option<String>,
}

impl From<PermissionRow> for Permission {
    fn from(row: PermissionRow) -> Self {
        Self {
            id: PermissionId::from(row.id),
            slug: row.slug,
            name: row.name,
            description: row.description,
        }
    }
}

#[derive(Deserialize)]
struct RatelimitRow {
    id: String,
    name: String,
    limit: i64,
    duration_ms: i64,
    #[serde(deserialize_with = "deserialize_bool")]
    auto_apply: bool,
    #[serde(deserialize_with = "deserialize_bool")]
    is_async: bool,
}

/// Deserializes a boolean from a word or a number, because SQLite has no booleans, not even in JSON.
fn deserialize_bool<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Flag {
        Word(bool),
        Number(i64),
    }

    Flag::deserialize(deserializer).map(|flag| match flag {
        Flag::Word(word) => word,
        Flag::Number(number) => number != 0,
    })
}

#[derive(FromRow)]
pub struct NamespaceRow {
    id: NamespaceId,
    workspace_id: WorkspaceId,
    name: String,
    on_outage: String,
    created_at: Timestamp,
    deleted_at: Option<Timestamp>,
}

impl TryFrom<NamespaceRow> for Namespace {
    type Error = Error;

    fn try_from(row: NamespaceRow) -> Result<Self> {
        let on_outage = row.on_outage.parse();
        Ok(Self {
            outage_policy: on_outage
                .map_err(|e| Error::Internal(format!("stored on_outage {e}")))?,
            id: row.id,
            workspace_id: row.workspace_id,
            name: row.name,
            created_at: row.created_at,
            deleted_at: row.deleted_at,
        })
    }
}

#[derive(FromRow)]
pub struct MigrationRow {
    id: MigrationId,
    workspace_id: WorkspaceId,
    name: Option<String>,
    algorithm: String,
    created_at: Timestamp,
    came: i64,
}

impl TryFrom<MigrationRow> for StoredMigration {
    type Error = Error;

    fn try_from(row: MigrationRow) -> Result<Self> {
        let algorithm = row.algorithm.parse();
        let migration = Migration {
            algorithm: algorithm.map_err(|e| Error::Internal(format!("stored algorithm {e}")))?,
            id: row.id,
            workspace_id: row.workspace_id,
            name: row.name,
            created_at: row.created_at,
        };
        Ok(Self { migration, imported_count: row.came })
    }
}

#[derive(FromRow)]
pub struct StoredNamespaceRow {
    #[sqlx(flatten)]
    namespace: NamespaceRow,
    overrides: String,
}

impl TryFrom<StoredNamespaceRow> for StoredNamespace {
    type Error = Error;

    fn try_from(row: StoredNamespaceRow) -> Result<Self> {
        let overrides = parse_json::<Vec<OverrideRow>>(&row.overrides)?;
        let overrides = overrides.into_iter().map(Override::from).collect();
        Ok(Self { namespace: row.namespace.try_into()?, overrides: Overrides::new(overrides) })
    }
}

#[derive(FromRow, Deserialize)]
pub struct OverrideRow {
    id: String,
    identifier: String,
    limit: i64,
    duration_ms: i64,
    expires_at: Option<i64>,
    #[serde(deserialize_with = "deserialize_bool")]
    is_async: bool,
    created_at: i64,
    updated_at: Option<i64>,
}

impl From<OverrideRow> for Override {
    fn from(row: OverrideRow) -> Self {
        Self {
            id: OverrideId::from(row.id),
            identifier: row.identifier,
            limit: row.limit,
            duration_ms: row.duration_ms,
            expires_at: row.expires_at.map(Timestamp),
            is_approximate: row.is_async,
            created_at: Timestamp(row.created_at),
            updated_at: row.updated_at.map(Timestamp),
        }
    }
}

/// Parses a list of limits and sorts it by name.
fn parse_ratelimits(list: &str) -> Result<Vec<Ratelimit>> {
    let mut limits: Vec<_> = parse_json::<Vec<RatelimitRow>>(list)?
        .into_iter()
        .map(|row| Ratelimit {
            id: RatelimitId::from(row.id),
            name: row.name,
            limit: row.limit,
            duration_ms: row.duration_ms,
            auto_apply: row.auto_apply,
            is_approximate: row.is_async,
        })
        .collect();
    limits.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(limits)
}

/// Parses a list of permissions and sorts it by slug.
fn parse_permissions(list: &str) -> Result<Vec<Permission>> {
    let mut permissions: Vec<Permission> =
        parse_json::<Vec<PermissionRow>>(list)?.into_iter().map(Permission::from).collect();
    permissions.sort_by(|a, b| a.slug.cmp(&b.slug));
    Ok(permissions)
}

fn parse_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|e| Error::Internal(format!("failed to parse a stored list: {e}")))
}
