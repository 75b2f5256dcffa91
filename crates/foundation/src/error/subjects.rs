//! Defines what errors are about: failed authentication, missing or existing resources, and unmet preconditions.

use thiserror::Error as ThisError;

use super::{Code, join_resources};
use crate::clock::Timestamp;
use crate::id::{
    ApiId, AuditId, GatewayPolicyId, IdentityId, InvitationId, KeyId, MigrationId, SessionId,
    UserId, WorkspaceId,
};

/// Why a caller is not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
pub enum AuthenticationError {
    #[error("the Authorization header is missing; send `Authorization: Bearer <root key>`")]
    HeaderMissing,
    #[error("the Authorization header is not of the form `Bearer <root key>`")]
    Malformed,
    #[error("the root key does not exist")]
    NotFound,
    #[error("the root key has been revoked")]
    Revoked,
    #[error("the root key has expired")]
    Expired,
}

/// A resource that a request named and that does not exist, or already exists.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum ResourceRef {
    #[error("API {0}")]
    Api(ApiId),
    #[error("key {0}")]
    Key(KeyId),
    /// The request contained the key itself, not its ID: it must not be repeated.
    #[error("the given key")]
    GivenKey,
    #[error("permission {0}")]
    Permission(String),
    #[error("role {0}")]
    Role(String),
    #[error("identity with externalId {0}")]
    Identity(String),
    #[error("identity {0}")]
    IdentityId(String),
    #[error("workspace {0}")]
    Workspace(WorkspaceId),
    #[error("root key {0}")]
    RootKey(KeyId),
    #[error("migration {0}")]
    Migration(MigrationId),
    #[error("rate-limit namespace {0}")]
    Namespace(String),
    #[error("an override for identifier {0}")]
    Override(String),
    #[error("gateway policy {0}")]
    GatewayPolicy(GatewayPolicyId),
    #[error("a gateway policy named {0}")]
    GatewayPolicyName(String),
    #[error("member {0}")]
    Member(UserId),
    #[error("invitation {0}")]
    Invitation(InvitationId),
    #[error("session {0}")]
    Session(SessionId),
    #[error("audit entry {0}")]
    AuditEntry(AuditId),
}

impl ResourceRef {
    /// Returns the code for a resource that does not exist.
    pub(super) fn not_found_code(&self) -> Code {
        match self {
            Self::Api(_) => Code::ApiNotFound,
            Self::Key(_) | Self::GivenKey => Code::KeyNotFound,
            Self::Permission(_) => Code::PermissionNotFound,
            Self::Role(_) => Code::RoleNotFound,
            Self::Identity(_) | Self::IdentityId(_) => Code::IdentityNotFound,
            Self::Workspace(_) => Code::WorkspaceNotFound,
            Self::RootKey(_) => Code::RootKeyNotFound,
            Self::Migration(_) => Code::MigrationNotFound,
            Self::Namespace(_) => Code::RatelimitNamespaceNotFound,
            Self::Override(_) => Code::RatelimitOverrideNotFound,
            Self::GatewayPolicy(_) | Self::GatewayPolicyName(_) => Code::GatewayPolicyNotFound,
            Self::Member(_) | Self::Invitation(_) | Self::Session(_) | Self::AuditEntry(_) => {
                Code::NotFound
            }
        }
    }

    /// Returns the code for a resource that already exists.
    pub(super) fn already_exists_code(&self) -> Code {
        match self {
            Self::Permission(_) => Code::PermissionAlreadyExists,
            Self::Role(_) => Code::RoleAlreadyExists,
            Self::Identity(_) | Self::IdentityId(_) => Code::IdentityAlreadyExists,
            Self::Key(_) | Self::GivenKey => Code::KeyAlreadyExists,
            Self::GatewayPolicy(_) | Self::GatewayPolicyName(_) => Code::GatewayPolicyAlreadyExists,
            Self::Api(_)
            | Self::Workspace(_)
            | Self::RootKey(_)
            | Self::Migration(_)
            | Self::Namespace(_)
            | Self::Override(_)
            | Self::Member(_)
            | Self::Invitation(_)
            | Self::Session(_)
            | Self::AuditEntry(_) => Code::UnexpectedError,
        }
    }
}

/// Why a valid request is rejected in the current state.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Refusal {
    #[error(
        "recoverable keys require a master key, which this server does not have; set KEYWARD_MASTER_KEY"
    )]
    NoMasterKey,
    #[error(
        "signed assertions (identityHeaders.signed) require a master key, which this server does not have; set \
        KEYWARD_MASTER_KEY"
    )]
    NoMasterKeyToSign,
    #[error(
        "the next signing key is published since the last rotation, less than 15 minutes ago, and verifiers that cache \
        the keys may not know it yet; rotate in {0} seconds, or use --force if the current key must not sign any longer"
    )]
    SigningKeyTooNew(i64),
    #[error("API {0} does not store recoverable keys; enable them with `keyward api update`")]
    RecoverableKeysDisabled(ApiId),
    #[error(
        "API {0} is protected against deletion; disable the protection with `keyward api update`"
    )]
    DeleteProtected(ApiId),
    #[error("{} does not exist; create it first", join_resources(.0))]
    MissingReferences(Vec<ResourceRef>),
    #[error(
        "the key has no rate limit named {name}; specify limit and duration for an ad-hoc limit"
    )]
    UnknownRatelimit { name: String, key: Option<KeyId>, identity: Option<IdentityId> },
    #[error("the workspace has the maximum of {0} rate-limit namespaces; delete one first")]
    TooManyNamespaces(i64),
    #[error(
        "key {key} expired at {}; re-roll the key that replaced it, or create a key",
        format_time(.at.0)
    )]
    KeyExpired { key: KeyId, at: Timestamp },
    #[error("a key can have at most {0} direct permissions; assign a role instead")]
    TooManyPermissions(usize),
    #[error("a key can have at most {0} roles")]
    TooManyRoles(usize),
    #[error("a key can have at most {0} rate limits; remove one first")]
    TooManyRatelimits(usize),
    #[error("a workspace must keep an owner; make another member an owner first")]
    LastOwner,
    #[error("the workspace has the maximum of {0} members; remove one first")]
    TooManyMembers(i64),
    #[error("the workspace has the maximum of {0} pending invitations; withdraw one first")]
    TooManyInvitations(i64),
    #[error("this is the only sign-in method; add another one first")]
    LastSignInMethod,
    #[error("the namespace has the maximum of {0} overrides; delete one first")]
    TooManyOverrides(i64),
    #[error("the workspace has the maximum of {0} gateway policies; delete one first")]
    TooManyGatewayPolicies(i64),
    #[error("this entry has already been undone")]
    AlreadyUndone,
    #[error("this entry cannot be undone: {0}")]
    NotUndoable(&'static str),
}

/// Formats a time in milliseconds as RFC 3339.
fn format_time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_string()
}

/// Why an analytics query fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryErrorKind {
    /// The query cannot be parsed, or uses an unsupported feature.
    Invalid,
    /// The query names a table that does not exist.
    Table,
    /// The query calls a function that does not exist.
    Function,
    /// The query is not a SELECT.
    Type,
    /// The query covers a time beyond the retention.
    BeyondRetention,
    /// The query took too long.
    Timeout,
    /// The query used too much memory, or its result is too large.
    Memory,
    /// The joins of the query yield too many rows.
    Rows,
    /// The workspace has exceeded its query quota.
    Quota,
}

impl QueryErrorKind {
    pub(super) fn code(self) -> Code {
        match self {
            Self::Invalid => Code::InvalidAnalyticsQuery,
            Self::Table => Code::InvalidAnalyticsTable,
            Self::Function => Code::InvalidAnalyticsFunction,
            Self::Type => Code::InvalidAnalyticsQueryType,
            Self::BeyondRetention => Code::QueryRangeExceedsRetention,
            Self::Timeout => Code::QueryExecutionTimeout,
            Self::Memory => Code::QueryMemoryLimitExceeded,
            Self::Rows => Code::QueryRowsLimitExceeded,
            Self::Quota => Code::QueryQuotaExceeded,
        }
    }
}
