//! Tells by the errors of both engines whether the database, or only a connection to it, is impaired.

use sqlx::error::DatabaseError as _;
use sqlx::sqlite::SqliteError;

/// Returns whether the database is unreachable, as opposed to a statement that it rejected.
pub fn is_database_outage(cause: &sqlx::Error) -> bool {
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

/// Returns whether a statement failed because its connection was lost. Another connection may work.
pub fn is_lost_connection(cause: &sqlx::Error) -> bool {
    match cause {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(cause) => cause.code().is_some_and(|code| is_connection_end(&code)),
        _ => false,
    }
}

/// Returns whether an SQLSTATE says that Postgres is temporarily impaired: its connections (class 08), resources (53,
/// such as a full disk), an operator (57), its disk (58030), or a server that is now read-only (25006); or that it
/// rolled back a transaction in favor of another one (40), did not wait for it (55P03), or ended one that was idle for
/// too long, in a process that was stopped (25P03).
fn is_postgres_outage(code: &str) -> bool {
    ["08", "40", "53", "57"].iter().any(|class| code.starts_with(class))
        || ["25006", "25P03", "55P03", "58030"].contains(&code)
}

/// Returns whether an SQLSTATE says that Postgres has ended the connection: in a failure of the connection itself (class 08), or
/// because the server stops or an operator has ended it (57P01 to 57P03). A statement that was too slow (57014) is not lost.
fn is_connection_end(code: &str) -> bool {
    code.starts_with("08") || ["57P01", "57P02", "57P03"].contains(&code)
}

/// Returns whether a result code of SQLite, extended or not, says that the file is not usable at the moment: locked by
/// another process (5, 6, 15), no memory (7), not writable (8), a disk failure (10), a full disk (13), or a file that
/// cannot be opened (14).
fn is_sqlite_outage(code: &str) -> bool {
    let primary = code.parse::<u32>().map(|code| code & 0xff);
    matches!(primary, Ok(5 | 6 | 7 | 8 | 10 | 13 | 14 | 15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_sqlite_outage_depends_on_primary_code() {
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
    fn lost_connections_exclude_slow_statements_and_rejected_connections() {
        for code in ["08006", "08003", "57P01", "57P02", "57P03"] {
            assert!(is_connection_end(code), "{code}");
        }
        for code in ["57014", "53300", "40P01", "55P03", "25006", "23505", "5", ""] {
            assert!(!is_connection_end(code), "{code}");
        }
        assert!(!is_lost_connection(&sqlx::Error::PoolTimedOut));
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(is_lost_connection(&sqlx::Error::Io(reset)));
    }

    #[test]
    fn is_postgres_outage_excludes_rejected_statements() {
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
