//! The database: whether it can be used as it is.

use std::time::Duration;

use foundation::config::Settings;
use foundation::error::Result;
use store::inspect::Schema;
use store::{EVENT_CONNECTIONS, RESERVED_CONNECTIONS, Store};

use super::{Finding, count, millis};

/// The oldest version that Keyward is tested with.
const OLDEST: i64 = 150_000;
/// From which round trip on somebody should know: what is not cached waits for several.
const FAR: Duration = Duration::from_millis(50);

/// Which Postgres it is, and how far away.
pub async fn postgres(store: &Store) -> Result<Finding> {
    let trip = store.round_trip().await?;
    let Some(server) = store.server().await? else { return Ok(Finding::ok("database", "SQLite")) };
    let found = format!("Postgres {}, {} away", server.version, millis(trip));
    if server.is_standby {
        return Ok(Finding::problem(
            "database",
            format!("{found}, is a standby, which cannot be written"),
            "set KEYWARD_DATABASE_URL to the primary, or promote this one",
        ));
    }
    Ok(aged(server.version_number, found, trip))
}

fn aged(version: i64, found: String, trip: Duration) -> Finding {
    if version < OLDEST {
        let todo = format!("use Postgres {} or later: older ones are not tested", OLDEST / 10_000);
        return Finding::warning("database", found, todo);
    }
    if trip >= FAR {
        let todo =
            "bring the replica nearer to its database: a key that is not cached waits for it";
        return Finding::warning("database", found, todo);
    }
    Finding::ok("database", found)
}

/// Whether the schema is this program's.
pub async fn schema(reading: impl Future<Output = Result<Schema>>) -> Result<Finding> {
    let schema = reading.await?;
    Ok(match (schema.foreign, schema.pending.as_slice()) {
        (Some(version), _) => Finding::problem(
            "schema",
            format!("version {version} is of another keyward than this one"),
            "use the keyward that made it, or a newer one",
        ),
        (None, []) => {
            let migrations = count(schema.applied, "migration", "migrations");
            Finding::ok("schema", format!("up to date, {migrations}"))
        }
        (None, pending) => Finding::warning(
            "schema",
            format!("{} pending", count(pending.len(), "migration is", "migrations are")),
            "run keyward migrate, or start a server, which does it too; what is in it was not looked at",
        ),
    })
}

/// Whether SQLite finds its file whole.
pub async fn integrity(reading: impl Future<Output = Result<Vec<String>>>) -> Result<Finding> {
    let todo = "stop the server, keep the file for later, and put the backup in its place";
    Ok(match reading.await {
        Ok(faults) => match faults.first() {
            None => Finding::ok("integrity", "SQLite finds no fault"),
            Some(first) => {
                let found = first.lines().last().unwrap_or(first);
                Finding::problem("integrity", format!("SQLite finds faults: {found}"), todo)
            }
        },
        Err(e) => Finding::problem("integrity", format!("SQLite fails: {}", e.cause()), todo),
    })
}

/// Whether Postgres takes as many connections as the replicas may make.
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

fn allowed(allowed: i64, now: i64, each: i64, replicas: i64) -> Finding {
    let needed = each.saturating_mul(replicas);
    let found = format!(
        "{now} of {allowed} are in use; {replicas} × {each} may be needed (replicas, and \
        KEYWARD_DATABASE_CONNECTIONS with {EVENT_CONNECTIONS} for events and {RESERVED_CONNECTIONS} for the change \
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
    fn an_old_postgres_and_a_far_one_are_warnings() {
        let state = |version, ms| aged(version, String::new(), Duration::from_millis(ms)).state;

        assert_eq!([state(150_000, 49), state(149_999, 49)], [Severity::Ok, Severity::Warning]);
        assert_eq!(state(150_000, 50), Severity::Warning);
    }

    #[test]
    fn replicas_that_may_ask_for_more_connections_than_there_are_are_a_warning() {
        assert_eq!(allowed(97, 5, 22, 4).state, Severity::Ok);
        assert_eq!(allowed(88, 5, 22, 4).state, Severity::Ok);
        assert_eq!(allowed(87, 5, 22, 4).state, Severity::Warning);
    }
}
