//! Defines records as lists show them: without what may be large.

use crate::clock::Timestamp;
use crate::id::{ApiId, IdentityId, KeyId};
use crate::model::{Identity, RoleSummary};

/// A [`Key`](crate::model::Key) without its metadata, its limits and its permissions.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct KeySummary {
    pub id: KeyId,
    pub api_id: ApiId,
    /// The leading characters that may be shown.
    pub start: String,
    pub name: Option<String>,
    /// The customer's name for the end user who owns the key.
    pub owner_id: Option<String>,
    pub is_enabled: bool,
    pub expires_at: Option<Timestamp>,
    /// Whether it has credits. Otherwise its use is unlimited.
    pub is_metered: bool,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
    /// The time of the last use that was written to the database.
    pub last_used_at: Option<Timestamp>,
}

/// A role without its permissions, and how many it has.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct RoleWithPermissionCount {
    #[sqlx(flatten)]
    pub role: RoleSummary,
    pub permission_count: i64,
}

/// An [`Identity`] without its metadata and its limits.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct IdentitySummary {
    pub id: IdentityId,
    pub external_id: String,
    pub limit_count: i64,
}

impl From<Identity> for IdentitySummary {
    fn from(identity: Identity) -> Self {
        Self {
            limit_count: i64::try_from(identity.ratelimits.len()).unwrap_or(i64::MAX),
            id: identity.id,
            external_id: identity.external_id,
        }
    }
}
