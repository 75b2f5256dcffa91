//! What can go wrong, and how it is called on the wire.
//!
//! [`Error`] knows nothing of HTTP but the status in the table of [`codes!`]. A name in that table is
//! part of the contract: a code may be added, never renamed and never used for something else. Each
//! has its section in `docs/errors.md`, which the server itself shows at `/errors/<name>`.

use std::convert::Infallible;

use thiserror::Error as ThisError;

use crate::id::{
    ApiId, IdentityId, InvitationId, KeyId, MigrationId, PersonId, SessionId, WorkspaceId,
};

pub type Result<T> = std::result::Result<T, Error>;

/// One thing that is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where the rule stands: `/properties/name/minLength`, `requestBody`.
    pub location: String,
    /// The caller's own field name, what is wrong with it, and the bound.
    pub message: String,
    /// What to do, where that is not plain from the message.
    pub fix: Option<&'static str>,
}

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
    UnknownRatelimit { name: String, key: KeyId, identity: Option<IdentityId> },
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
    TooManyMembers(usize),
    #[error("the namespace has {0} overrides, which is the most; delete one first")]
    TooManyOverrides(i64),
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
    /// The workspace has asked too much.
    Quota,
}

impl QueryFault {
    fn code(self) -> Code {
        match self {
            Self::Invalid => Code::InvalidAnalyticsQuery,
            Self::Table => Code::InvalidAnalyticsTable,
            Self::Function => Code::InvalidAnalyticsFunction,
            Self::Type => Code::InvalidAnalyticsQueryType,
            Self::Forgotten => Code::QueryRangeExceedsRetention,
            Self::Timeout => Code::QueryExecutionTimeout,
            Self::Memory => Code::QueryMemoryLimitExceeded,
            Self::Quota => Code::QueryQuotaExceeded,
        }
    }
}

#[derive(Debug, ThisError)]
pub enum Error {
    #[error("the request is not valid: {}", .0.iter().map(|f| f.message.as_str()).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Fault>),
    #[error("the permissions query is not valid: {0}")]
    Query(String),
    /// Tells what is wrong with a question about events.
    #[error("{1}")]
    Question(QueryFault, String),
    #[error(
        "the key must have at least three parts between underscores: the migration's are prefix_short_long"
    )]
    MalformedKey,
    #[error("{0}")]
    Unauthenticated(Unknown),
    #[error("the workspace is disabled")]
    WorkspaceDisabled,
    /// Holds the missing permission, or the alternatives, as one text.
    #[error("the root key lacks the permission {0}")]
    Forbidden(String),
    #[error("{} does not exist", list(.0))]
    NotFound(Vec<Subject>),
    #[error("{0} exists already")]
    Taken(Subject),
    #[error("Ratelimit with name {0:?} is already defined in the request")]
    Doubled(String),
    #[error("rate-limit namespace {0} has been deleted")]
    NamespaceGone(String),
    #[error(
        "the Idempotency-Key was used for another request within the last day; give each its own"
    )]
    NameReused,
    #[error("another request with the same Idempotency-Key is under way")]
    Overtaken,
    /// Names the variable that does it.
    #[error("this server does not answer it: {0}")]
    SwitchedOff(&'static str),
    /// Tells what there was too much of.
    #[error("{0}; try again in a minute")]
    TooMany(&'static str),
    #[error("{0}")]
    Refused(Refusal),
    #[error("there is nothing at this path")]
    NoSuchPath,
    #[error("this path does not answer {0}; it answers {1}")]
    WrongMethod(String, &'static str),
    #[error("the request's body did not arrive within {0} seconds")]
    BodyTimeout(u64),
    #[error("the request's body is larger than {0} bytes")]
    BodyTooLarge(usize),
    #[error("the counters cannot be reached: {0}")]
    Counters(#[from] redis::RedisError),
    #[error("the counters did not answer within {0} ms")]
    CountersTimeout(u64),
    #[error("the counters are away")]
    CountersAway,
    #[error("the counters were reached too late, and counted nothing")]
    CountersLate,
    #[error("the database did not answer within {0} s")]
    StoreTimeout(u64),
    #[error("the database is not there, or not yet")]
    StoreUnopened,
    #[error("the database failed: {0}")]
    Store(#[from] sqlx::Error),
    /// A load that several requests waited for; its cause has been logged by the first.
    #[error("{0}")]
    Shared(std::sync::Arc<Error>),
    #[error("{0}")]
    Internal(String),
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

fn list(subjects: &[Subject]) -> String {
    subjects.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Error {
    /// One thing that is not there.
    pub fn not_found(subject: Subject) -> Self {
        Self::NotFound(vec![subject])
    }

    /// One fault of one field, found by a rule that no schema can say.
    pub fn invalid(location: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![Fault { location: location.into(), message: message.into(), fix: None }])
    }

    /// The same faults in a part of a request: `place` is where the part stands in the schema, `field` how its fields
    /// begin.
    #[must_use]
    pub fn within(self, place: &str, field: &str) -> Self {
        let within = |fault: Fault| Fault {
            location: format!("{place}{}", fault.location),
            message: format!("{field}{}", fault.message),
            ..fault
        };
        match self {
            Self::Invalid(faults) => Self::Invalid(faults.into_iter().map(within).collect()),
            other => other,
        }
    }

    /// How the error is called on the wire.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(_) => Code::InvalidInput,
            Self::MalformedKey => Code::KeyMalformed,
            Self::Query(_) => Code::PermissionsQuerySyntaxError,
            Self::Question(fault, _) => fault.code(),
            Self::Unauthenticated(unknown) => match unknown {
                Unknown::Missing => Code::AuthenticationMissing,
                Unknown::Malformed => Code::AuthenticationMalformed,
                Unknown::NotFound => Code::RootKeyNotFound,
                Unknown::Revoked => Code::RootKeyRevoked,
                Unknown::Expired => Code::RootKeyExpired,
            },
            Self::WorkspaceDisabled => Code::WorkspaceDisabled,
            Self::SwitchedOff(_) => Code::OperationSwitchedOff,
            Self::TooMany(_) => Code::TooManyRequests,
            Self::Forbidden(_) => Code::InsufficientPermissions,
            Self::NotFound(subjects) => match subjects.first() {
                Some(Subject::Api(_)) => Code::ApiNotFound,
                Some(Subject::Key(_) | Subject::Secret) | None => Code::KeyNotFound,
                Some(Subject::Permission(_)) => Code::PermissionNotFound,
                Some(Subject::Role(_)) => Code::RoleNotFound,
                Some(Subject::Identity(_) | Subject::IdentityId(_)) => Code::IdentityNotFound,
                Some(Subject::Workspace(_)) => Code::WorkspaceNotFound,
                Some(Subject::RootKey(_)) => Code::RootKeyNotFound,
                Some(Subject::Migration(_)) => Code::MigrationNotFound,
                Some(Subject::Namespace(_)) => Code::RatelimitNamespaceNotFound,
                Some(Subject::Override(_)) => Code::RatelimitOverrideNotFound,
                Some(Subject::Member(_) | Subject::Invitation(_) | Subject::Session(_)) => {
                    Code::NotFound
                }
            },
            Self::Taken(subject) => match subject {
                Subject::Permission(_) => Code::PermissionAlreadyExists,
                Subject::Role(_) => Code::RoleAlreadyExists,
                Subject::Identity(_) | Subject::IdentityId(_) => Code::IdentityAlreadyExists,
                Subject::Key(_) | Subject::Secret => Code::KeyAlreadyExists,
                Subject::Api(_)
                | Subject::Workspace(_)
                | Subject::RootKey(_)
                | Subject::Migration(_)
                | Subject::Namespace(_)
                | Subject::Override(_)
                | Subject::Member(_)
                | Subject::Invitation(_)
                | Subject::Session(_) => Code::UnexpectedError,
            },
            Self::Doubled(_) => Code::RatelimitAlreadyExists,
            Self::NamespaceGone(_) => Code::RatelimitNamespaceGone,
            Self::NameReused | Self::Overtaken => Code::IdempotencyKeyInUse,
            Self::Refused(Refusal::Protected(_)) => Code::ProtectedResource,
            Self::Refused(_) => Code::PreconditionFailed,
            Self::NoSuchPath => Code::NotFound,
            Self::WrongMethod(..) => Code::MethodNotAllowed,
            Self::BodyTimeout(_) => Code::RequestTimeout,
            Self::BodyTooLarge(_) => Code::RequestBodyTooLarge,
            Self::Counters(_)
            | Self::CountersTimeout(_)
            | Self::CountersAway
            | Self::CountersLate
            | Self::StoreTimeout(_)
            | Self::StoreUnopened => Code::ServiceUnavailable,
            Self::Store(cause) if is_outage(cause) => Code::ServiceUnavailable,
            Self::Store(_) | Self::Internal(_) => Code::UnexpectedError,
            Self::Shared(cause) => cause.code(),
        }
    }

    /// What the caller is told: everything about its own mistakes, nothing about ours.
    pub fn detail(&self) -> String {
        match self.code() {
            Code::UnexpectedError => {
                "something failed in the server; the request id finds it in the server's log".into()
            }
            Code::ServiceUnavailable => {
                "a server behind this one cannot be reached; try again in a moment".into()
            }
            _ => self.to_string(),
        }
    }

    /// Whether the counters could not be asked, so that somebody must decide without them.
    pub fn is_counters_outage(&self) -> bool {
        match self {
            Self::Counters(_)
            | Self::CountersTimeout(_)
            | Self::CountersAway
            | Self::CountersLate => true,
            Self::Shared(cause) => cause.is_counters_outage(),
            _ => false,
        }
    }

    /// The innermost text: the outer ones only say that something failed.
    pub fn cause(&self) -> String {
        match self {
            Self::Store(sqlx::Error::Io(e)) => e.to_string(),
            Self::Store(e) => e.to_string(),
            other => other.to_string(),
        }
    }

    /// The single faults, for the errors that list them.
    pub fn faults(&self) -> &[Fault] {
        match self {
            Self::Invalid(faults) => faults,
            _ => &[],
        }
    }

    /// Whether the statement failed because this unique constraint of the migrations holds the value
    /// already.
    pub fn violates(&self, constraint: &str) -> bool {
        let Self::Store(sqlx::Error::Database(cause)) = self else { return false };
        // SQLite tells the columns, Postgres the name.
        let columns =
            UNIQUE.iter().find(|(name, _)| *name == constraint).map(|(_, columns)| columns);
        cause.is_unique_violation()
            && (cause.constraint() == Some(constraint)
                || columns.is_some_and(|columns| cause.message().ends_with(columns)))
    }

    /// Whether a server behind this one is out of reach and may come back by itself. Two that do not
    /// agree on TLS wait for a person.
    pub fn is_outage(&self) -> bool {
        self.code() == Code::ServiceUnavailable && !matches!(self, Self::Store(sqlx::Error::Tls(_)))
    }

    /// Whether the statement named a row that is not there.
    pub fn points_nowhere(&self) -> bool {
        matches!(self, Self::Store(sqlx::Error::Database(e)) if e.is_foreign_key_violation())
    }
}

/// The unique constraints that are asked about, and the columns that SQLite names instead.
const UNIQUE: [(&str, &str); 5] = [
    ("keys_hash_unique", ": keys.hash"),
    ("root_keys_hash_unique", ": root_keys.hash"),
    ("roles_name_unique", ": roles.workspace_id, roles.name"),
    ("permissions_slug_unique", ": permissions.workspace_id, permissions.slug"),
    ("identities_external_id_unique", ": identities.workspace_id, identities.external_id"),
];

/// Whether the database is out of reach, as against a statement that it refused.
pub fn is_outage(cause: &sqlx::Error) -> bool {
    match cause {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        // Classes of SQLSTATE: connection, resources, operator intervention, a transaction undone
        // for the sake of another one, busy SQLite.
        sqlx::Error::Database(cause) => cause.code().is_some_and(|code| {
            ["08", "40", "53", "57"].iter().any(|class| code.starts_with(class)) || code == "5"
        }),
        _ => false,
    }
}

macro_rules! codes {
    ($($name:ident $wire:literal $status:literal $title:literal,)*) => {
        /// The name of an error on the wire. Append-only.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($name,)* }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The last part of the error's `type`, and of its page.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $wire,)* }
            }

            pub fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    InvalidInput "invalid_input" 400 "Bad Request",
    KeyMalformed "key_malformed" 400 "Bad Request",
    PermissionsQuerySyntaxError "permissions_query_syntax_error" 400 "Bad Request",
    InvalidAnalyticsQuery "invalid_analytics_query" 400 "Bad Request",
    InvalidAnalyticsTable "invalid_analytics_table" 400 "Bad Request",
    InvalidAnalyticsFunction "invalid_analytics_function" 400 "Bad Request",
    InvalidAnalyticsQueryType "invalid_analytics_query_type" 400 "Bad Request",
    QueryRangeExceedsRetention "query_range_exceeds_retention" 400 "Bad Request",
    AuthenticationMissing "authentication_missing" 401 "Unauthorized",
    AuthenticationMalformed "authentication_malformed" 401 "Unauthorized",
    RootKeyNotFound "root_key_not_found" 401 "Unauthorized",
    RootKeyRevoked "root_key_revoked" 401 "Unauthorized",
    RootKeyExpired "root_key_expired" 401 "Unauthorized",
    InsufficientPermissions "insufficient_permissions" 403 "Forbidden",
    WorkspaceDisabled "workspace_disabled" 403 "Forbidden",
    OperationSwitchedOff "operation_switched_off" 403 "Forbidden",
    NotFound "not_found" 404 "Not Found",
    ApiNotFound "api_not_found" 404 "Not Found",
    KeyNotFound "key_not_found" 404 "Not Found",
    IdentityNotFound "identity_not_found" 404 "Not Found",
    PermissionNotFound "permission_not_found" 404 "Not Found",
    RoleNotFound "role_not_found" 404 "Not Found",
    WorkspaceNotFound "workspace_not_found" 404 "Not Found",
    MigrationNotFound "migration_not_found" 404 "Not Found",
    RatelimitNamespaceNotFound "ratelimit_namespace_not_found" 404 "Not Found",
    RatelimitOverrideNotFound "ratelimit_override_not_found" 404 "Not Found",
    MethodNotAllowed "method_not_allowed" 405 "Method Not Allowed",
    RequestTimeout "request_timeout" 408 "Request Timeout",
    IdentityAlreadyExists "identity_already_exists" 409 "Conflicting Resource",
    PermissionAlreadyExists "permission_already_exists" 409 "Conflicting Resource",
    RoleAlreadyExists "role_already_exists" 409 "Conflicting Resource",
    RatelimitAlreadyExists "ratelimit_already_exists" 409 "Conflicting Resource",
    KeyAlreadyExists "key_already_exists" 409 "Conflicting Resource",
    IdempotencyKeyInUse "idempotency_key_in_use" 409 "Conflicting Resource",
    RatelimitNamespaceGone "ratelimit_namespace_gone" 410 "Resource Gone",
    PreconditionFailed "precondition_failed" 412 "Precondition Failed",
    ProtectedResource "protected_resource" 412 "Resource is protected",
    RequestBodyTooLarge "request_body_too_large" 413 "Request Entity Too Large",
    QueryExecutionTimeout "query_execution_timeout" 422 "Unprocessable Entity",
    QueryMemoryLimitExceeded "query_memory_limit_exceeded" 422 "Unprocessable Entity",
    TooManyRequests "too_many_requests" 429 "Too Many Requests",
    QueryQuotaExceeded "query_quota_exceeded" 429 "Too Many Requests",
    UnexpectedError "unexpected_error" 500 "Internal Server Error",
    ServiceUnavailable "service_unavailable" 503 "Service Unavailable",
}
