//! What can go wrong, and how it is called on the wire.
//!
//! [`Error`] knows nothing of HTTP but the status in the table of [`Code`]s. Each of them has its section in
//! `docs/errors.md`, which the server itself shows at `/errors/<name>`.

mod codes;
mod subjects;

use std::convert::Infallible;

use sqlx::error::DatabaseError;
use sqlx::sqlite::SqliteError;
use thiserror::Error as ThisError;

pub use codes::Code;
pub use subjects::{QueryFault, Refusal, Subject, Unknown};

pub type Result<T> = std::result::Result<T, Error>;

/// One thing that is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Where the rule stands: `/properties/name/minLength`, `requestBody`.
    pub location: String,
    /// The caller's own field name, what is wrong with it, and the bound.
    pub message: String,
    /// What to do, where that is not plain from the message.
    pub fix: Option<&'static str>,
}

#[derive(Debug, ThisError)]
pub enum Error {
    #[error("the request is not valid: {}", .0.iter().map(|f| f.message.as_str()).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<FieldError>),
    #[error("the permissions query is not valid: {0}")]
    Query(String),
    /// Tells what is wrong with a question about events.
    #[error("{1}")]
    AnalyticsQuery(QueryFault, String),
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
    IdempotencyKeyReused,
    #[error("another request with the same Idempotency-Key is under way")]
    IdempotencyConflict,
    /// Names the variable that does it.
    #[error("this server does not answer it: {0}")]
    OperationDisabled(&'static str),
    /// Tells what there was too much of.
    #[error("{0}; try again in a minute")]
    TooManyRequests(&'static str),
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
    /// Somebody may still be spending from it, so what is left is not known.
    #[error("a credit lease of the key could not be seen closed")]
    LeaseNotClosed,
    #[error("the database did not answer within {0} s")]
    StoreTimeout(u64),
    #[error("the database is not there, or not yet")]
    StoreNotReady,
    /// Names what too many requests wait for.
    #[error("too many requests wait for {0}; try again in a second")]
    Busy(&'static str),
    #[error("the credits of the key could not be debited in time")]
    DebitTimeout,
    /// Tells which replicas.
    #[error(
        "nothing was changed, for replicas that may rely on announcements could not be told: {0}; try again, or \
        declare one that is gone for good gone with keyward replica forget"
    )]
    Unreached(String),
    /// A failure in another transaction has undone it.
    #[error("the commit that the change shared with others was lost: {0}")]
    CommitLost(String),
    #[error("the database failed: {0}")]
    Store(#[from] sqlx::Error),
    #[error("ClickHouse failed: {0}")]
    ClickHouse(String),
    #[error("ClickHouse is away: {0}")]
    ClickHouseAway(String),
    /// Tells what of the issuer failed.
    #[error("the issuer of single sign-on cannot be used: {0}")]
    Issuer(String),
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

impl Error {
    /// Whether the database was asked and has not answered at all.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::StoreTimeout(_) | Self::Store(sqlx::Error::PoolTimedOut))
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
        Self::Invalid(vec![FieldError {
            location: location.into(),
            message: message.into(),
            fix: None,
        }])
    }

    /// The same faults in a part of a request: `place` is where the part stands in the schema, `field` how its fields
    /// begin.
    #[must_use]
    pub fn within(self, place: &str, field: &str) -> Self {
        let within = |fault: FieldError| FieldError {
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
            Self::AnalyticsQuery(fault, _) => fault.code(),
            Self::Unauthenticated(unknown) => match unknown {
                Unknown::Missing => Code::AuthenticationMissing,
                Unknown::Malformed => Code::AuthenticationMalformed,
                Unknown::NotFound => Code::RootKeyNotFound,
                Unknown::Revoked => Code::RootKeyRevoked,
                Unknown::Expired => Code::RootKeyExpired,
            },
            Self::WorkspaceDisabled => Code::WorkspaceDisabled,
            Self::OperationDisabled(_) => Code::OperationSwitchedOff,
            Self::TooManyRequests(_) => Code::TooManyRequests,
            Self::Forbidden(_) => Code::InsufficientPermissions,
            Self::NotFound(subjects) => subjects.first().map_or(Code::KeyNotFound, Subject::absent),
            Self::Taken(subject) => subject.taken(),
            Self::Doubled(_) => Code::RatelimitAlreadyExists,
            Self::NamespaceGone(_) => Code::RatelimitNamespaceGone,
            Self::IdempotencyKeyReused | Self::IdempotencyConflict => Code::IdempotencyKeyInUse,
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
            | Self::LeaseNotClosed
            | Self::StoreTimeout(_)
            | Self::StoreNotReady
            | Self::CommitLost(_)
            | Self::Busy(_)
            | Self::DebitTimeout
            | Self::Unreached(_)
            | Self::ClickHouseAway(_)
            | Self::Issuer(_) => Code::ServiceUnavailable,
            Self::Store(cause) if is_outage(cause) => Code::ServiceUnavailable,
            Self::Store(_) | Self::ClickHouse(_) | Self::Internal(_) => Code::UnexpectedError,
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
    pub fn faults(&self) -> &[FieldError] {
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

    /// Whether the statement waited in vain for a row that somebody else holds.
    pub fn is_lock_timeout(&self) -> bool {
        let code = |e: &dyn DatabaseError| e.code().is_some_and(|code| code == "55P03");
        matches!(self, Self::Store(sqlx::Error::Database(e)) if code(&**e))
    }

    /// Whether the statement named a row that is not there.
    pub fn is_foreign_key_violation(&self) -> bool {
        matches!(self, Self::Store(sqlx::Error::Database(e)) if e.is_foreign_key_violation())
    }
}

/// The unique constraints that are asked about, and the columns that SQLite names instead.
const UNIQUE: [(&str, &str); 6] = [
    ("keys_hash_unique", ": keys.hash"),
    ("root_keys_hash_unique", ": root_keys.hash"),
    ("roles_name_unique", ": roles.workspace_id, roles.name"),
    ("permissions_slug_unique", ": permissions.workspace_id, permissions.slug"),
    ("identities_external_id_unique", ": identities.workspace_id, identities.external_id"),
    ("audit_undoes_unique", ": audit.undoes"),
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
        sqlx::Error::Database(cause) => match cause.try_downcast_ref::<SqliteError>() {
            Some(cause) => cause.code().is_some_and(|code| is_sqlite_outage(&code)),
            None => cause.code().is_some_and(|code| is_postgres_outage(&code)),
        },
        _ => false,
    }
}

/// Whether an SQLSTATE says that Postgres, as it stands, cannot do what it could do before: its connections (class 08),
/// resources (53, such as a full disk), an operator (57), its disk (58030), or that it follows another server (25006);
/// or that it has undone a transaction for the sake of another one (40), did not wait for it (55P03), or ended one that
/// rested for too long, in a process that was stopped (25P03).
fn is_postgres_outage(code: &str) -> bool {
    ["08", "40", "53", "57"].iter().any(|class| code.starts_with(class))
        || ["25006", "25P03", "55P03", "58030"].contains(&code)
}

/// Whether a result code of SQLite, extended or not, says that the file, as it stands, cannot be used: locked by
/// another process (5, 6, 15), no memory (7), not writable (8), a failure of the disk (10), a full one (13), or a file
/// that cannot be opened (14).
fn is_sqlite_outage(code: &str) -> bool {
    let primary = code.parse::<u32>().map(|code| code & 0xff);
    matches!(primary, Ok(5 | 6 | 7 | 8 | 10 | 13 | 14 | 15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_outages_are_told_from_refusals_by_their_primary_codes() {
        // FULL, IOERR, IOERR_WRITE, IOERR_FSYNC, READONLY, READONLY_DBMOVED, CANTOPEN, BUSY, BUSY_SNAPSHOT, NOMEM.
        for code in ["13", "10", "778", "1034", "8", "1032", "14", "5", "517", "7"] {
            assert!(is_sqlite_outage(code), "{code}");
        }
        // ERROR, CONSTRAINT_UNIQUE, CONSTRAINT_CHECK, CORRUPT, TOOBIG, NOTADB.
        for code in ["1", "2067", "275", "11", "18", "26", ""] {
            assert!(!is_sqlite_outage(code), "{code}");
        }
    }

    #[test]
    fn postgres_outages_are_told_from_refusals() {
        let outages = [
            "53100", "53200", "53300", "57P01", "57P03", "57014", "08006", "40P01", "25006",
            "55P03", "58030",
        ];
        for code in outages {
            assert!(is_postgres_outage(code), "{code}");
        }
        for code in ["23505", "22003", "42P01", "XX001", "25P02", "5", ""] {
            assert!(!is_postgres_outage(code), "{code}");
        }
    }
}
