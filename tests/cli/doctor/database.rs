//! Tests the checks of a Postgres that refuses connections, or does not keep what it has committed.

use super::*;

#[test]
fn doctor_distinguishes_postgres_that_refuses_connections_from_an_unreachable_one() {
    let (database, redis) = (database(), Redis::start());
    let (server, _) = database.url.rsplit_once('/').unwrap();

    let report = DoctorReport::by(&mut replica(&format!("{server}/keyward_none"), &redis.url()));

    report.assert_problems(&["database"]).assert_finding(
        "database",
        "problem",
        &[
            "refused the connection",
            "keyward_none",
            "does not exist",
            "the database in KEYWARD_DATABASE_URL",
        ],
    );
    let finding = report.finding("database").to_string();
    assert!(!finding.contains("unreachable") && !finding.contains("at line"), "{finding}");
}

#[test]
fn doctor_warns_when_postgres_does_not_wait_for_its_disk() {
    let (database, redis) = (database(), Redis::start());
    let doctor = || DoctorReport::by(&mut replica(&database.url, &redis.url()));
    let setting = |on: bool| {
        match on {
        true => {
            "DO $$ BEGIN
                EXECUTE format('ALTER DATABASE %I SET synchronous_commit = on', current_database());
            END $$"
        }
        false => {
            "DO $$ BEGIN
                EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database());
            END $$"
        }
    }
    };

    execute(&database, setting(false));
    let off = doctor();
    execute(&database, setting(true));
    let on = doctor();

    off.assert_problems(&[]).assert_finding("durability", "warning", &["synchronous_commit"]);
    // Whether `fsync` is on depends on the server.
    let finding = on.finding("durability");
    assert!(!finding.to_string().contains("synchronous_commit"), "{finding}");
}
