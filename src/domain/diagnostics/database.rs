//! Checks of the database: version, round trip, schema, integrity and connections.

use std::time::Duration;

use foundation::config::Settings;
use foundation::error::Result;
use store::inspect::Schema;
use store::{EVENT_CONNECTIONS, RESERVED_CONNECTIONS, Store};

use super::{Finding, count, millis};

/// The oldest version that Keyward is tested with, as `server_version_num`.
const OLDEST: i64 = 150_000;
/// The round trip from which a finding is a warning: a request that is not cached waits for several.
const FAR: Duration = Duration::from_millis(50);

/// Reports the version of Postgres and the round trip to it.
pub async fn postgres(store: &Store) -> Result<Finding> {
    let round_trip = store.round_trip().await?;
    let Some(server) = store.server().await? else { return Ok(Finding::ok("database", "SQLite")) };
    let found = format!("Postgres {}, round trip {}", server.version, millis(round_trip));
    if server.is_standby {
        return Ok(Finding::problem(
            "database",
            format!("{found}, is a read-only standby"),
            "set KEYWARD_DATABASE_URL to the primary, or promote this standby",
        ));
    }
    Ok(aged(server.version_number, found, round_trip))
}

fn aged(version: i64, found: String, round_trip: Duration) -> Finding {
    if version < OLDEST {
        let todo =
            format!("use Postgres {} or later: older versions are not tested", OLDEST / 10_000);
        return Finding::warning("database", found, todo);
    }
    if round_trip >= FAR {
        let todo =
            "move the replica closer to its database: verification of an uncached key waits for it";
        return Finding::warning("database", found, todo);
    }
    Finding::ok("database", found)
}

/// Checks that the schema is that of this version of Keyward.
pub async fn schema(reading: impl Future<Output = Result<Schema>>) -> Result<Finding> {
    let schema = reading.await?;
    Ok(match (schema.foreign, schema.pending.as_slice()) {
        (Some(version), _) => Finding::problem(
            "schema",
            format!("version {version} belongs to another keyward version"),
            "use the keyward version that created it, or a newer one",
        ),
        (None, []) => {
            let migrations = count(schema.applied, "migration", "migrations");
            Finding::ok("schema", format!("up to date, {migrations}"))
        }
        (None, pending) => Finding::warning(
            "schema",
            format!("{} pending", count(pending.len(), "migration is", "migrations are")),
            "run keyward migrate, or start a server, which also migrates; the checks of the content were skipped",
        ),
    })
}

/// Reports the result of an integrity check by SQLite.
pub async fn integrity(reading: impl Future<Output = Result<Vec<String>>>) -> Result<Finding> {
    let todo = "stop the server, save a copy of the file, and restore the backup";
    Ok(match reading.await {
        Ok(errors) => match errors.first() {
            None => Finding::ok("integrity", "SQLite reports no errors"),
            Some(first) => {
                let found = first.lines().last().unwrap_or(first);
                Finding::problem("integrity", format!("SQLite reports errors: {found}"), todo)
            }
        },
        Err(e) => Finding::problem("integrity", format!("SQLite failed: {}", e.cause()), todo),
    })
}

/// Checks that Postgres allows as many connections as the running replicas may open.
pub async fn connections(settings: &Settings, store: &Store) -> Result<Finding> {
    let Some(server) = store.server().await? else { return Ok(Finding::ok("connections", "")) };
    let replicas = super::contents::present(store).await?.max(1);
    let each = settings.database_connections_max + EVENT_CONNECTIONS + RESERVED_CONNECTIONS;
    Ok(allowed(
        server.connections_max - server.connections_reserved,
        server.connections,
        i64::from(each),
        i64::try_from(replicas).unwrap_or(i64::MAX),
    ))
}

fn allowed(allowed: i64, used: i64, each: i64, replicas: i64) -> Finding {
    let needed = each.saturating_mul(replicas);
    let found = format!(
        "{used} of {allowed} are in use; {replicas} × {each} may be needed (number of replicas × \
        KEYWARD_DATABASE_CONNECTIONS plus {EVENT_CONNECTIONS} for events and {RESERVED_CONNECTIONS} for the change \
        feed)"
    );
    if needed > allowed {
        let todo = "raise max_connections of Postgres, or lower KEYWARD_DATABASE_CONNECTIONS";
        return Finding::warning("connections", found, todo);
    }
    Finding::ok("connections", found)
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn postgres_is_a_warning_when_old_or_round_trip_is_long() {
        let state = |version, ms| aged(version, String::new(), Duration::from_millis(ms)).state;

        assert_eq!([state(150_000, 49), state(149_999, 49)], [Severity::Ok, Severity::Warning]);
        assert_eq!(state(150_000, 50), Severity::Warning);
    }

    #[test]
    fn connections_are_a_warning_when_replicas_may_need_more_than_allowed() {
        assert_eq!(allowed(97, 5, 22, 4).state, Severity::Ok);
        assert_eq!(allowed(88, 5, 22, 4).state, Severity::Ok);
        assert_eq!(allowed(87, 5, 22, 4).state, Severity::Warning);
    }
}
