//! Checks of the read replica: whether it replicates the database, how far behind it is, and how far away.

use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::error::Result;
use store::Store;

use super::{Finding, format_age, format_millis};
use crate::context::heartbeats::STANDBY_DELAY_MAX;
use crate::context::{REPLICA_TTL_MS, STANDBY_READ_TIMEOUT};

const CHECK: &str = "read-replica";
/// How long the check waits for the read replica to receive a heartbeat.
const LAG_WAIT: Duration = Duration::from_secs(3);
const LAG_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The maximum number of replicas that are read.
const REPLICAS_MAX: i64 = 1_000;

/// What to do if it is no copy of the database.
const REPLICATE: &str = "set KEYWARD_DATABASE_READ_URL to a standby of the server in KEYWARD_DATABASE_URL, with the same \
    database, or repair its replication; until then uncached keys are read from the primary";

/// What was found out about the read replica.
struct Measurement {
    version: String,
    round_trip: Duration,
    primary_round_trip: Duration,
    lag: Lag,
}

/// How far the read replica is behind.
enum Lag {
    /// No replica of this version is running, so there are no heartbeats by which to measure.
    Unmeasured,
    /// It had the latest heartbeat of the primary within this time.
    Within(Duration),
    /// Its latest heartbeat of a running replica is this old, in milliseconds.
    Behind(i64),
    /// It has no heartbeat of this running replica.
    NotReplicated(String),
    /// Heartbeats cannot be read there, because of this error.
    Unreadable(String),
}

/// Compares the read replica with the primary.
pub async fn check_read_replica(url: &str, primary: &Store) -> Result<Finding> {
    let standby = match Store::connect_read_only(url).await {
        Ok(standby) => standby,
        Err(e) => {
            let found = format!("the read replica is unreachable: {}", e.innermost_message());
            let todo = "check that it runs, that this machine can connect to it, and KEYWARD_DATABASE_READ_URL; until \
                then uncached keys are read from the primary";
            return Ok(Finding::problem(CHECK, found, todo));
        }
    };
    let measured = measure(&standby, primary).await;
    standby.close().await;
    Ok(assess(&measured?))
}

async fn measure(standby: &Store, primary: &Store) -> Result<Measurement> {
    let server = standby.load_postgres_settings().await?;
    Ok(Measurement {
        version: server.map(|server| server.version).unwrap_or_default(),
        round_trip: standby.measure_round_trip().await?,
        primary_round_trip: primary.measure_round_trip().await?,
        lag: measure_lag(standby, primary).await?,
    })
}

/// Waits for a heartbeat of a running replica that the primary has.
async fn measure_lag(standby: &Store, primary: &Store) -> Result<Lag> {
    let mut reader = primary.read().await?;
    let latest = reader.list_replicas(1).await?.into_iter().find(|(_, ms)| *ms <= REPLICA_TTL_MS);
    let Some((replica, _)) = latest else { return Ok(Lag::Unmeasured) };
    let Some(number @ 1..) = reader.find_heartbeat(&replica).await? else {
        return Ok(Lag::Unmeasured);
    };
    let waiting = Stopwatch::new();
    let mut reader = standby.read().await?;
    loop {
        let found = match reader.find_heartbeat(&replica).await {
            Ok(found) => found,
            Err(e) => return Ok(Lag::Unreadable(e.innermost_message())),
        };
        let waited = waiting.elapsed();
        match found {
            Some(found) if found >= number => return Ok(Lag::Within(waited)),
            None if waited > LAG_WAIT => return Ok(Lag::NotReplicated(replica)),
            Some(_) if waited > LAG_WAIT => break,
            Some(_) | None => tokio::time::sleep(LAG_POLL_INTERVAL).await,
        }
    }
    let replicas = reader.list_replicas(REPLICAS_MAX).await?;
    let age = replicas.into_iter().find(|(id, _)| *id == replica).map(|(_, ms)| ms);
    Ok(age.map_or(Lag::NotReplicated(replica), Lag::Behind))
}

fn assess(measured: &Measurement) -> Finding {
    let Measurement { version, round_trip, primary_round_trip, lag } = measured;
    let distances = format!(
        "Postgres {version}, round trip {}, to the primary {}",
        format_millis(*round_trip),
        format_millis(*primary_round_trip)
    );
    let found = match lag {
        Lag::Unmeasured => {
            format!("{distances}; its lag is unknown, because no replica is running")
        }
        Lag::Within(time) => format!("{distances}; up to date within {}", format_millis(*time)),
        Lag::Behind(ms) => {
            let found = format!("{distances}; {} behind", format_age(*ms));
            let todo = format!(
                "check its replication: a read replica that is more than {} s behind is not used",
                STANDBY_DELAY_MAX.as_secs()
            );
            return Finding::warning(CHECK, found, todo);
        }
        Lag::NotReplicated(replica) => {
            let found = format!("it has no heartbeat of the running replica {replica}");
            return Finding::problem(CHECK, format!("{distances}; {found}"), REPLICATE);
        }
        Lag::Unreadable(error) => {
            let found = format!("{distances}; failed to read a heartbeat: {error}");
            return Finding::problem(CHECK, found, REPLICATE);
        }
    };
    if *round_trip >= STANDBY_READ_TIMEOUT / 2 {
        let todo = format!(
            "move it closer: a read that takes {} is given up, and made on the primary",
            format_millis(STANDBY_READ_TIMEOUT)
        );
        return Finding::warning(CHECK, found, todo);
    }
    if round_trip > primary_round_trip && *primary_round_trip >= Duration::from_millis(1) {
        let todo = "unset KEYWARD_DATABASE_READ_URL for this server, whose primary is closer";
        return Finding::warning(CHECK, found, todo);
    }
    Finding::ok(CHECK, found)
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    fn finding(ms: u64, primary_ms: u64, lag: Lag) -> Finding {
        let (round_trip, primary_round_trip) =
            (Duration::from_millis(ms), Duration::from_millis(primary_ms));
        assess(&Measurement { version: "17.2".into(), round_trip, primary_round_trip, lag })
    }

    #[test]
    fn read_replica_is_a_problem_when_it_does_not_replicate_and_a_warning_when_it_lags() {
        let up_to_date = finding(1, 150, Lag::Within(Duration::from_millis(12)));
        assert_eq!((up_to_date.state, up_to_date.todo), (Severity::Ok, None));
        let text =
            "Postgres 17.2, round trip 1.0 ms, to the primary 150.0 ms; up to date within 12.0 ms";
        assert_eq!(up_to_date.found, text);
        assert_eq!(finding(1, 150, Lag::Unmeasured).state, Severity::Ok);
        let behind = finding(1, 150, Lag::Behind(8_000));
        assert_eq!(behind.state, Severity::Warning);
        assert!(behind.found.ends_with("8 s behind"), "{}", behind.found);
        for other in [Lag::NotReplicated("rep_a".into()), Lag::Unreadable("no table".into())] {
            assert_eq!(finding(1, 150, other).state, Severity::Problem);
        }
    }

    #[test]
    fn read_replica_is_a_warning_when_far_away_or_farther_than_the_primary() {
        let state = |ms, primary_ms| finding(ms, primary_ms, Lag::Unmeasured).state;

        assert_eq!([state(49, 150), state(50, 150)], [Severity::Ok, Severity::Warning]);
        assert_eq!([state(20, 20), state(21, 20)], [Severity::Ok, Severity::Warning]);
        assert_eq!(state(1, 0), Severity::Ok, "on the same machine");
    }
}
