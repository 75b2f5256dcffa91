//! Defines the errors of the server and their representation on the wire.
//!
//! [`Error`] is independent of HTTP except for the status in the table of [`Code`]s. Each code has a section in
//! `docs/errors.md`, which the server shows at `/errors/<name>`.

mod codes;
mod outages;
mod retry_after;
mod subjects;

use std::convert::Infallible;
use std::error::Error as StdError;

use sqlx::error::DatabaseError;
use thiserror::Error as ThisError;

pub use codes::Code;
pub use outages::{is_database_outage, is_lost_connection};
pub use retry_after::RetryAfter;
pub use subjects::{AuthenticationError, QueryErrorKind, Refusal, ResourceRef};

use crate::id::KeyId;

pub type Result<T> = std::result::Result<T, Error>;

/// One invalid field of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The location of the violated rule: `/properties/name/minLength`, `requestBody`.
    pub location: String,
    /// The caller's field name, what is wrong with it, and the bound.
    pub message: String,
    /// What to do, if the message does not make it clear.
    pub fix: Option<&'static str>,
}

#[derive(Debug, ThisError)]
pub enum Error {
    #[error("the request is not valid: {}", .0.iter().map(|f| f.message.as_str()).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<FieldError>),
    #[error("the permissions query is not valid: {0}")]
    PermissionQuery(String),
    /// Holds what is wrong with an analytics query.
    #[error("{1}")]
    AnalyticsQuery(QueryErrorKind, String),
    #[error("the key must have at least three parts separated by underscores: prefix_short_long")]
    MalformedKey,
    /// The gateway named an unknown policy, or could not prove itself. The log has the reason.
    #[error(
        "the gateway policy does not exist, or the Keyward-Gateway-Secret header is missing or wrong"
    )]
    GatewayRefused,
    #[error("{0}")]
    Unauthenticated(AuthenticationError),
    #[error("the workspace is disabled")]
    WorkspaceDisabled,
    /// Holds the missing permission, or the alternatives, as one text.
    #[error("the root key lacks the permission {0}")]
    Forbidden(String),
    /// The namespace that a gateway has named.
    #[error("the gateway policy does not list the namespace {0}")]
    NamespaceNotListed(String),
    #[error("{} does not exist", join_resources(.0))]
    NotFound(Vec<ResourceRef>),
    #[error("{0} already exists")]
    AlreadyExists(ResourceRef),
    #[error("Ratelimit with name {0:?} is already defined in the request")]
    DuplicateRatelimit(String),
    #[error("rate-limit namespace {0} has been deleted")]
    NamespaceDeleted(String),
    #[error(
        "the Idempotency-Key was used for another request within the last day; use a new one for each request"
    )]
    IdempotencyKeyReused,
    #[error("another request with the same Idempotency-Key is in progress")]
    IdempotencyConflict,
    /// Names the variable that disables it.
    #[error("this operation is disabled on this server by {0}")]
    OperationDisabled(&'static str),
    /// Holds what there was too much of.
    #[error("{reason}; try again in {retry_after}")]
    TooManyRequests { reason: &'static str, retry_after: RetryAfter },
    #[error("{0}")]
    PreconditionFailed(Refusal),
    #[error("no operation or page at this path")]
    PathNotFound,
    #[error("this path does not support {0}; it supports {1}")]
    MethodNotAllowed(String, &'static str),
    #[error("the request body did not arrive within {0} seconds")]
    BodyTimeout(u64),
    #[error("the request body is larger than {0} bytes")]
    BodyTooLarge(usize),
    #[error("Redis is unreachable: {0}")]
    Redis(#[from] redis::RedisError),
    #[error("Redis did not respond within {0} ms")]
    RedisTimeout(u64),
    #[error("the Redis circuit breaker is open")]
    RedisBreakerOpen,
    #[error("the region {0} is not listed in KEYWARD_REGIONS")]
    UnknownRegion(String),
    #[error("the home of a limit may have moved while the request was decided")]
    HomeMoving,
    #[error("the Redis deadline passed; nothing was consumed")]
    RedisDeadlinePassed,
    /// Another replica may still be spending from it, so the remaining credits are unknown.
    #[error("a credit lease of the key could not be closed")]
    LeaseNotClosed,
    /// What it holds is unknown.
    #[error(
        "a credit lease of key {0} was opened or closed at this moment, or Redis has lost it; try again in a minute"
    )]
    LeaseNotFound(KeyId),
    #[error(
        "credits of key {0} are withheld, because Redis lost them; see `keyward credits list`, and try again when they are \
        returned or released"
    )]
    CreditsWithheld(KeyId),
    #[error("the database did not respond within {0} s")]
    StoreTimeout(u64),
    #[error("the database is not available; retry in a few seconds")]
    StoreNotReady,
    /// Names what the requests wait for.
    #[error("too many requests wait for {0}; try again in a second")]
    Overloaded(&'static str),
    #[error("the credits of the key could not be debited in time")]
    DebitTimeout,
    /// Lists the replicas.
    #[error(
        "nothing was changed: could not notify replicas {0}; try again, or run keyward replica forget for a \
        replica that no longer runs"
    )]
    ReplicasNotNotified(String),
    /// A failure in another transaction has rolled it back.
    #[error("the commit that this change shared with others failed: {0}")]
    CommitLost(String),
    #[error("the database failed: {0}")]
    Store(#[from] sqlx::Error),
    #[error("ClickHouse failed: {0}")]
    ClickHouse(String),
    #[error("ClickHouse is unreachable: {0}")]
    ClickHouseUnreachable(String),
    /// Describes the failure of the provider.
    #[error("the OIDC provider is not usable: {0}")]
    OidcProvider(String),
    /// A load that several requests waited for. The first one has logged its cause.
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

/// Returns the innermost cause of an error: those around it often say only that something failed.
pub fn innermost_cause<'a>(error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    error.source().map_or(error, innermost_cause)
}

impl Error {
    /// Returns whether the database did not reply at all.
    pub fn is_database_timeout(&self) -> bool {
        matches!(self, Self::StoreTimeout(_) | Self::Store(sqlx::Error::PoolTimedOut))
    }
}

fn join_resources(resources: &[ResourceRef]) -> String {
    resources.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Error {
    /// Creates the error for one resource that does not exist.
    pub fn not_found(resource: ResourceRef) -> Self {
        Self::NotFound(vec![resource])
    }

    /// Creates the error for one invalid field, found by a rule that the schema cannot express.
    pub fn invalid(location: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError {
            location: location.into(),
            message: message.into(),
            fix: None,
        }])
    }

    /// Returns the same field errors in a part of a request: `place` is the location of the part in the schema, `field`
    /// the prefix of its fields.
    #[must_use]
    pub fn nest_under(self, location_prefix: &str, field_prefix: &str) -> Self {
        let within = |error: FieldError| FieldError {
            location: format!("{location_prefix}{}", error.location),
            message: format!("{field_prefix}{}", error.message),
            ..error
        };
        match self {
            Self::Invalid(errors) => Self::Invalid(errors.into_iter().map(within).collect()),
            other => other,
        }
    }

    /// Returns the code of the error on the wire.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(_) => Code::InvalidInput,
            Self::MalformedKey => Code::KeyMalformed,
            Self::PermissionQuery(_) => Code::PermissionsQuerySyntaxError,
            Self::AnalyticsQuery(kind, _) => kind.code(),
            Self::Unauthenticated(reason) => match reason {
                AuthenticationError::HeaderMissing => Code::AuthenticationMissing,
                AuthenticationError::Malformed => Code::AuthenticationMalformed,
                AuthenticationError::NotFound => Code::RootKeyNotFound,
                AuthenticationError::Revoked => Code::RootKeyRevoked,
                AuthenticationError::Expired => Code::RootKeyExpired,
            },
            Self::GatewayRefused => Code::GatewayRefused,
            Self::WorkspaceDisabled => Code::WorkspaceDisabled,
            Self::OperationDisabled(_) => Code::OperationSwitchedOff,
            Self::TooManyRequests { .. } => Code::TooManyRequests,
            Self::Forbidden(_) | Self::NamespaceNotListed(_) => Code::InsufficientPermissions,
            Self::NotFound(subjects) => {
                subjects.first().map_or(Code::KeyNotFound, ResourceRef::not_found_code)
            }
            Self::AlreadyExists(subject) => subject.already_exists_code(),
            Self::DuplicateRatelimit(_) => Code::RatelimitAlreadyExists,
            Self::NamespaceDeleted(_) => Code::RatelimitNamespaceGone,
            Self::IdempotencyKeyReused | Self::IdempotencyConflict => Code::IdempotencyKeyInUse,
            Self::PreconditionFailed(Refusal::DeleteProtected(_)) => Code::ProtectedResource,
            Self::PreconditionFailed(_) => Code::PreconditionFailed,
            Self::PathNotFound => Code::NotFound,
            Self::MethodNotAllowed(..) => Code::MethodNotAllowed,
            Self::BodyTimeout(_) => Code::RequestTimeout,
            Self::BodyTooLarge(_) => Code::RequestBodyTooLarge,
            Self::Redis(_)
            | Self::RedisTimeout(_)
            | Self::RedisBreakerOpen
            | Self::UnknownRegion(_)
            | Self::HomeMoving
            | Self::RedisDeadlinePassed
            | Self::LeaseNotClosed
            | Self::LeaseNotFound(_)
            | Self::CreditsWithheld(_)
            | Self::StoreTimeout(_)
            | Self::StoreNotReady
            | Self::CommitLost(_)
            | Self::Overloaded(_)
            | Self::DebitTimeout
            | Self::ReplicasNotNotified(_)
            | Self::ClickHouseUnreachable(_)
            | Self::OidcProvider(_) => Code::ServiceUnavailable,
            Self::Store(cause) if is_database_outage(cause) => Code::ServiceUnavailable,
            Self::Store(_) | Self::ClickHouse(_) | Self::Internal(_) => Code::UnexpectedError,
            Self::Shared(cause) => cause.code(),
        }
    }

    /// Returns the message for the caller. It describes the caller's mistakes in full, and no internal failures.
    pub fn detail(&self) -> String {
        match self.code() {
            Code::UnexpectedError => {
                "internal error; find its cause in the server log by the request id".into()
            }
            Code::ServiceUnavailable => {
                "a dependency of this server is unavailable; try again in a moment".into()
            }
            _ => self.to_string(),
        }
    }

    /// Returns whether the counters were unreachable, so that the caller must decide without them.
    pub fn is_redis_outage(&self) -> bool {
        match self {
            Self::Redis(_)
            | Self::RedisTimeout(_)
            | Self::RedisBreakerOpen
            | Self::UnknownRegion(_)
            | Self::HomeMoving
            | Self::RedisDeadlinePassed => true,
            Self::Shared(cause) => cause.is_redis_outage(),
            _ => false,
        }
    }

    /// Returns the innermost message; the outer ones only say that something failed.
    pub fn innermost_message(&self) -> String {
        match self {
            Self::Store(sqlx::Error::Io(e)) => e.to_string(),
            // Without the line in the source of Postgres, which looks like one of the caller.
            Self::Store(sqlx::Error::Database(e)) => e.message().to_owned(),
            Self::Store(e) => e.to_string(),
            Self::Redis(e) => e.to_string(),
            other => other.to_string(),
        }
    }

    /// Returns whether the database was reached and replied with an error.
    pub fn is_database_reply(&self) -> bool {
        matches!(self, Self::Store(sqlx::Error::Database(_)))
    }

    /// Returns the field errors, if the error has any.
    pub fn field_errors(&self) -> &[FieldError] {
        match self {
            Self::Invalid(errors) => errors,
            _ => &[],
        }
    }

    /// Returns whether the statement failed because a row already has the value of this unique constraint.
    pub fn is_unique_violation_of(&self, constraint: &str) -> bool {
        let Self::Store(sqlx::Error::Database(cause)) = self else { return false };
        // SQLite reports the columns, Postgres the name.
        let columns =
            UNIQUE.iter().find(|(name, _)| *name == constraint).map(|(_, columns)| columns);
        cause.is_unique_violation()
            && (cause.constraint() == Some(constraint)
                || columns.is_some_and(|columns| cause.message().ends_with(columns)))
    }

    /// Returns whether a dependency is unreachable and may recover by itself. A failed TLS negotiation requires an
    /// operator.
    pub fn is_outage(&self) -> bool {
        self.code() == Code::ServiceUnavailable && !matches!(self, Self::Store(sqlx::Error::Tls(_)))
    }

    /// Returns whether a statement failed because its connection to the database was lost. Another connection may work.
    pub fn has_lost_connection(&self) -> bool {
        matches!(self, Self::Store(cause) if is_lost_connection(cause))
    }

    /// Returns whether the statement timed out waiting for a row that another transaction has locked.
    pub fn is_lock_timeout(&self) -> bool {
        let code = |e: &dyn DatabaseError| e.code().is_some_and(|code| code == "55P03");
        matches!(self, Self::Store(sqlx::Error::Database(e)) if code(&**e))
    }

    /// Returns whether the statement referenced a row that does not exist.
    pub fn is_foreign_key_violation(&self) -> bool {
        matches!(self, Self::Store(sqlx::Error::Database(e)) if e.is_foreign_key_violation())
    }
}

/// The unique constraints that are checked, and the columns that SQLite reports instead.
const UNIQUE: [(&str, &str); 7] = [
    ("keys_hash_unique", ": keys.hash"),
    ("root_keys_hash_unique", ": root_keys.hash"),
    ("roles_name_unique", ": roles.workspace_id, roles.name"),
    ("permissions_slug_unique", ": permissions.workspace_id, permissions.slug"),
    ("identities_external_id_unique", ": identities.workspace_id, identities.external_id"),
    ("gateway_policies_name_unique", ": gateway_policies.workspace_id, gateway_policies.name"),
    ("audit_undoes_unique", ": audit.undoes"),
];
