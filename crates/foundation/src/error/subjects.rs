//! What errors are about: who is not known, what is not there, and what does not fit the state of things.

use thiserror::Error as ThisError;

use super::{Code, list};
use crate::id::{
    ApiId, AuditId, IdentityId, InvitationId, KeyId, MigrationId, PersonId, SessionId, WorkspaceId,
};

/// Why a caller is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
pub enum Unknown {
    #[error("the Authorization header is missing; send `Authorization: Bearer <root key>`")]
    Missing,
    #[error("the Authorization header is not of the form `Bearer <root key>`")]
    Malformed,
    #[error("the root key does not exist")]
    NotFound,
    #[error("the root key has been revoked")]
    Revoked,
    #[error("the root key has expired")]
    Expired,
}

/// What a request named that is not there, or is there already.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Subject {
    #[error("API {0}")]
    Api(ApiId),
    #[error("key {0}")]
    Key(KeyId),
    /// The key itself was shown, not its id: it must not be repeated.
    #[error("the given key")]
    Secret,
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
    #[error("member {0}")]
    Member(PersonId),
    #[error("invitation {0}")]
    Invitation(InvitationId),
    #[error("session {0}")]
    Session(SessionId),
    #[error("entry {0} of the audit log")]
    AuditEntry(AuditId),
}

impl Subject {
    /// How it is called on the wire that it is not there.
    pub(super) fn absent(&self) -> Code {
        match self {
            Self::Api(_) => Code::ApiNotFound,
            Self::Key(_) | Self::Secret => Code::KeyNotFound,
            Self::Permission(_) => Code::PermissionNotFound,
            Self::Role(_) => Code::RoleNotFound,
            Self::Identity(_) | Self::IdentityId(_) => Code::IdentityNotFound,
            Self::Workspace(_) => Code::WorkspaceNotFound,
            Self::RootKey(_) => Code::RootKeyNotFound,
            Self::Migration(_) => Code::MigrationNotFound,
            Self::Namespace(_) => Code::RatelimitNamespaceNotFound,
            Self::Override(_) => Code::RatelimitOverrideNotFound,
            Self::Member(_) | Self::Invitation(_) | Self::Session(_) | Self::AuditEntry(_) => {
                Code::NotFound
            }
        }
    }

    /// How it is called on the wire that it is there already.
    pub(super) fn taken(&self) -> Code {
        match self {
            Self::Permission(_) => Code::PermissionAlreadyExists,
            Self::Role(_) => Code::RoleAlreadyExists,
            Self::Identity(_) | Self::IdentityId(_) => Code::IdentityAlreadyExists,
            Self::Key(_) | Self::Secret => Code::KeyAlreadyExists,
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

/// A request that is right in itself and does not fit the state of things.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Refusal {
    #[error(
        "recoverable keys need a master key, which this server does not have: KEYWARD_MASTER_KEY"
    )]
    NoVault,
    #[error("API {0} keeps no recoverable keys; `keyward api update` lets it")]
    NotRecoverable(ApiId),
    #[error("API {0} is protected against deletion; `keyward api update` takes that from it")]
    Protected(ApiId),
    #[error("{} does not exist; make it first", list(.0))]
    Missing(Vec<Subject>),
    #[error("the key has no rate limit named {name}; give limit and duration to check one ad hoc")]
    UnknownRatelimit { name: String, key: Option<KeyId>, identity: Option<IdentityId> },
    #[error(
        "the workspace has {0} rate-limit namespaces, which is the most; have one deleted first"
    )]
    TooManyNamespaces(i64),
    #[error("a key has at most {0} permissions of itself; give it a role instead")]
    TooManyPermissions(usize),
    #[error("a key has at most {0} roles")]
    TooManyRoles(usize),
    #[error("a workspace must keep an owner; make another member one first")]
    LastOwner,
    #[error("the workspace has {0} members, which is the most; remove one first")]
    TooManyMembers(i64),
    #[error("this is the only way in to the account; have another one first")]
    OnlyWayIn,
    #[error("the namespace has {0} overrides, which is the most; delete one first")]
    TooManyOverrides(i64),
    #[error("it has been undone already")]
    UndoneAlready,
    #[error("it cannot be undone: {0}")]
    NotUndone(&'static str),
}

/// Why a question about events is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryFault {
    /// It cannot be understood, or asks for something that is not offered.
    Invalid,
    /// It names a table that there is not.
    Table,
    /// It calls a function that there is not.
    Function,
    /// It is no SELECT.
    Type,
    /// It asks for what is older than anything that is kept.
    Forgotten,
    /// It took too long.
    Timeout,
    /// It took too much memory, or its answer is too large.
    Memory,
    /// Its joins give too many rows.
    Rows,
    /// The workspace has asked too much.
    Quota,
}

impl QueryFault {
    pub(super) fn code(self) -> Code {
        match self {
            Self::Invalid => Code::InvalidAnalyticsQuery,
            Self::Table => Code::InvalidAnalyticsTable,
            Self::Function => Code::InvalidAnalyticsFunction,
            Self::Type => Code::InvalidAnalyticsQueryType,
            Self::Forgotten => Code::QueryRangeExceedsRetention,
            Self::Timeout => Code::QueryExecutionTimeout,
            Self::Memory => Code::QueryMemoryLimitExceeded,
            Self::Rows => Code::QueryRowsLimitExceeded,
            Self::Quota => Code::QueryQuotaExceeded,
        }
    }
}
