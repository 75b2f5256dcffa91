//! Checks of the database: version, round trip, durability, schema, integrity and connections.

use std::time::Duration;

use foundation::config::Settings;
use foundation::error::{Error, Result};
use store::inspect::SchemaStatus;
use store::{EVENT_CONNECTIONS, RESERVED_CONNECTIONS, Store};

use super::{Finding, format_count, format_millis};

/// The oldest version that Keyward is tested with, as `server_version_num`.
const VERSION_MIN: i64 = 150_000;
/// The round trip from which a finding is a warning: a request that is not cached waits for several.
const ROUND_TRIP_WARNING: Duration = Duration::from_millis(50);

/// Returns the finding for a Postgres that cannot be connected to.
pub fn connection_failure(e: &Error) -> Finding {
    let cause = e.innermost_message();
    if e.is_database_reply() {
        let todo = "correct the user, the password or the database in KEYWARD_DATABASE_URL, or check that Postgres has started \
            and has a free connection";
        return Finding::problem(
            "database",
            format!("Postgres refused the connection: {cause}"),
            todo,
        );
    }
    let todo =
        "check that Postgres runs, that this machine can connect to it, and KEYWARD_DATABASE_URL";
    Finding::problem("database", format!("Postgres is unreachable: {cause}"), todo)
}

/// Reports the version of Postgres and the round trip to it. With a read replica, it may be far away.
pub async fn check_postgres(store: &Store, has_read_replica: bool) -> Result<Finding> {
    let round_trip = store.measure_round_trip().await?;
    let Some(server) = store.load_postgres_settings().await? else {
        return Ok(Finding::ok("database", "SQLite"));
    };
    let found = format!("Postgres {}, round trip {}", server.version, format_millis(round_trip));
    if server.is_standby {
        return Ok(Finding::problem(
            "database",
            format!("{found}, is a read-only standby"),
            "set KEYWARD_DATABASE_URL to the primary, or promote this standby",
        ));
    }
    let round_trip = if has_read_replica { Duration::ZERO } else { round_trip };
    Ok(check_version_and_round_trip(server.version_number, found, round_trip))
}

fn check_version_and_round_trip(version: i64, found: String, round_trip: Duration) -> Finding {
    if version < VERSION_MIN {
        let todo = format!(
            "use Postgres {} or later: older versions are not tested",
            VERSION_MIN / 10_000
        );
        return Finding::warning("database", found, todo);
    }
    if round_trip >= ROUND_TRIP_WARNING {
        let todo =
            "move the replica closer to its database: verification of an uncached key waits for it";
        return Finding::warning("database", found, todo);
    }
    Finding::ok("database", found)
}

/// Checks that Postgres keeps what it has committed when it crashes.
pub async fn check_durability(store: &Store) -> Result<Finding> {
    let server = store.load_postgres_settings().await?;
    Ok(assess_durability(&server.map(|server| server.disabled_durability).unwrap_or_default()))
}

fn assess_durability(disabled: &[String]) -> Finding {
    if disabled.is_empty() {
        let found = "Postgres writes each commit to its disk before it replies";
        return Finding::ok("durability", found);
    }
    let lost = match disabled.iter().any(|name| name == "fsync") {
        true => "a crash of its machine may lose changes, credits that were spent, or the database",
        false => "a crash of Postgres may lose the last changes, and credits that were spent",
    };
    let found = format!("Postgres has {} off: {lost}", disabled.join(" and "));
    let todo = format!(
        "set {} to on for the server, and reset it for the role and the database of KEYWARD_DATABASE_URL",
        disabled.join(" and ")
    );
    Finding::warning("durability", found, todo)
}

/// Checks that the schema is that of this version of Keyward.
pub async fn check_schema(reading: impl Future<Output = Result<SchemaStatus>>) -> Result<Finding> {
    let schema = reading.await?;
    Ok(match (schema.unknown_version, schema.pending_versions.as_slice()) {
        (Some(version), _) => Finding::problem(
            "schema",
            format!("version {version} belongs to another keyward version"),
            "use the keyward version that created it, or a newer one",
        ),
        (None, []) => {
            let migrations = format_count(schema.applied_count, "migration", "migrations");
            Finding::ok("schema", format!("up to date, {migrations}"))
        }
        (None, pending) => Finding::warning(
            "schema",
            format!("{} pending", format_count(pending.len(), "migration is", "migrations are")),
            "run keyward migrate, or start a server, which also migrates; the checks of the content were skipped",
        ),
    })
}

/// Reports the result of an integrity check by SQLite.
pub async fn check_integrity(
    reading: impl Future<Output = Result<Vec<String>>>,
) -> Result<Finding> {
    let todo = "stop the server, save a copy of the file, and restore the backup";
    Ok(match reading.await {
        Ok(errors) => match errors.first() {
            None => Finding::ok("integrity", "SQLite reports no errors"),
            Some(first) => {
                let found = first.lines().last().unwrap_or(first);
                Finding::problem("integrity", format!("SQLite reports errors: {found}"), todo)
            }
        },
        Err(e) => {
            Finding::problem("integrity", format!("SQLite failed: {}", e.innermost_message()), todo)
        }
    })
}

/// Checks that Postgres allows as many connections as the running replicas may open, and has a free one.
pub async fn check_connections(settings: &Settings, store: &Store) -> Result<Finding> {
    let Some(server) = store.load_postgres_settings().await? else {
        return Ok(Finding::ok("connections", ""));
    };
    let replicas = super::contents::count_live_replicas(store).await?.max(1);
    let each = settings.database_connections_max + EVENT_CONNECTIONS + RESERVED_CONNECTIONS;
    Ok(compare_connections(
        server.connections_max - server.connections_reserved,
        server.connections,
        i64::from(each),
        i64::try_from(replicas).unwrap_or(i64::MAX),
    ))
}

fn compare_connections(allowed: i64, used: i64, each: i64, replicas: i64) -> Finding {
    let needed = each.saturating_mul(replicas);
    let found = format!(
        "{used} of {allowed} are in use; {replicas} × {each} may be needed (number of replicas × \
        KEYWARD_DATABASE_CONNECTIONS plus {EVENT_CONNECTIONS} for events and {RESERVED_CONNECTIONS} for the change \
        feed)"
    );
    let todo = if needed > allowed {
        "raise max_connections of Postgres, or lower KEYWARD_DATABASE_CONNECTIONS"
    } else if used >= allowed {
        "none is free: end other clients of Postgres, or raise its max_connections"
    } else {
        return Finding::ok("connections", found);
    };
    Finding::warning("connections", found, todo)
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn postgres_is_a_warning_when_old_or_round_trip_is_long() {
        let state = |version, ms| {
            check_version_and_round_trip(version, String::new(), Duration::from_millis(ms)).state
        };

        assert_eq!([state(150_000, 49), state(149_999, 49)], [Severity::Ok, Severity::Warning]);
        assert_eq!(state(150_000, 50), Severity::Warning);
    }

    #[test]
    fn durability_is_a_warning_that_names_what_is_off() {
        let finding = |disabled: &[&str]| {
            assess_durability(&disabled.iter().map(ToString::to_string).collect::<Vec<_>>())
        };

        assert_eq!((finding(&[]).state, finding(&[]).todo), (Severity::Ok, None));
        let one = finding(&["synchronous_commit"]);
        assert_eq!(one.state, Severity::Warning);
        assert!(one.found.contains("synchronous_commit off: a crash of Postgres"), "{}", one.found);
        let both = finding(&["fsync", "synchronous_commit"]);
        assert_eq!(both.state, Severity::Warning);
        assert!(both.found.contains("fsync and synchronous_commit off"), "{}", both.found);
        assert!(both.found.contains("or the database"), "{}", both.found);
    }

    #[test]
    fn connections_are_a_warning_when_replicas_may_need_more_than_allowed() {
        assert_eq!(compare_connections(97, 5, 22, 4).state, Severity::Ok);
        assert_eq!(compare_connections(88, 5, 22, 4).state, Severity::Ok);
        assert_eq!(compare_connections(87, 5, 22, 4).state, Severity::Warning);
    }

    #[test]
    fn connections_are_a_warning_when_none_is_free() {
        assert_eq!(compare_connections(97, 96, 22, 4).state, Severity::Ok);
        assert_eq!(compare_connections(97, 97, 22, 4).state, Severity::Warning);
    }
}
