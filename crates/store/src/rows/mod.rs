//! Defines the rows that queries return, and converts them to the types of `model`.

mod credits;
mod gateway_policies;
mod keys;
mod permission_holders;
mod ratelimits;
mod users;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::home::Home;
use foundation::id::{ApiId, IdentityId, KeyId, MigrationId, PermissionId, RoleId, WorkspaceId};
use foundation::model::{
    Api, ApiSettings, Identity, Meta, Migration, Networks, Permission, Role, RootKey,
};
use serde::Deserialize;
use sqlx_macros::FromRow;

use self::ratelimits::parse_ratelimits;
use super::{StoredMigration, StoredRootKey};
pub use credits::{AccountRow, KeyAccountRow, KeyCreditsRow, KeyLeaseRow};
pub use gateway_policies::{GatewayPolicyRow, StoredGatewayPolicyRow};
pub use keys::{KeyForSpendingRow, KeyRow};
pub use permission_holders::AssignmentRow;
pub use ratelimits::{NamespaceRow, OverrideRow, StoredNamespaceRow};
pub use users::{SessionRow, UserWithPasswordRow};

/// A row, and the last heartbeat of a replica.
#[derive(FromRow)]
pub struct RowWithHeartbeat<Row> {
    #[sqlx(flatten)]
    pub row: Row,
    pub heartbeat: Option<i64>,
}

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
    home: Option<String>,
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
            home: parse_home(row.home.as_deref())?,
            created_at: row.created_at,
            deleted_at: row.deleted_at,
        })
    }
}

/// Parses a home.
fn parse_home(text: Option<&str>) -> Result<Option<Home>> {
    text.map(|text| text.parse().map_err(Error::Internal)).transpose()
}

fn parse_networks(list: Option<&str>) -> Result<Option<Networks>> {
    let Some(list) = list else { return Ok(None) };
    let networks: Vec<String> = parse_json(list)?;
    let networks = Networks::parse(&networks.join(",")).map_err(Error::Internal)?;
    Ok(Networks::new(networks))
}

#[derive(FromRow)]
pub struct IdentityRow {
    id: IdentityId,
    external_id: String,
    meta: Option<String>,
    home: Option<String>,
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
            home: parse_home(row.home.as_deref())?,
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
