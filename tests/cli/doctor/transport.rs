//! Tests what `keyward doctor` finds about passwords that cross a network.

use super::*;

/// What the first part of the finding says.
const FOUND: &str = "a password is sent without a verified certificate to";

#[test]
fn doctor_warns_when_passwords_cross_a_network_without_a_verified_certificate() {
    let doctor = |sslmode: &str, (redis, clickhouse): (&str, &str)| {
        let postgres =
            |name: &str| format!("postgres://u:a_secret@{name}.invalid/k?sslmode={sslmode}");
        let redis_url = |name: &str| format!("{redis}://:a_secret@{name}.invalid");
        let mut command = replica(&postgres("primary"), &redis_url("redis"));
        command
            .env("KEYWARD_DATABASE_READ_URL", postgres("standby"))
            .env("KEYWARD_DATABASE_ANALYTICS_URL", postgres("analytics"))
            .env("KEYWARD_CLICKHOUSE_URL", format!("{clickhouse}://u:a_secret@events.invalid/k"))
            .env("KEYWARD_REGION", "eu")
            .env(
                "KEYWARD_REGIONS",
                format!("eu={},us={}", redis_url("redis"), redis_url("redis-us")),
            );
        let report = DoctorReport::by(&mut command);
        assert!(!format!("{:?}", report.findings).contains("a_secret"));
        report
    };

    let exposed = [
        FOUND,
        "Postgres at primary.invalid, Postgres at standby.invalid, Postgres at analytics.invalid, \
        Redis at redis.invalid, Redis at redis-us.invalid, ClickHouse at events.invalid",
    ];
    doctor("require", ("redis", "http")).assert_finding("transport", "warning", &exposed);
    doctor("verify-full", ("rediss", "https")).assert_finding("transport", "ok", &[]);
}

#[test]
fn doctor_warns_when_an_embedded_server_sends_a_password_to_clickhouse() {
    let data = tempfile::tempdir().unwrap();
    let doctor = |url: Option<&str>| {
        let mut command = embedded(data.path());
        command.envs(url.map(|url| ("KEYWARD_CLICKHOUSE_URL", url)));
        DoctorReport::by(&mut command)
    };

    let exposed = doctor(Some("http://u:a_secret@events.invalid/k"));
    exposed.assert_finding("transport", "warning", &[FOUND, "ClickHouse at events.invalid"]);
    let checks = doctor(None).findings.into_iter().map(|finding| finding["check"].clone());
    assert!(!checks.collect::<Vec<_>>().contains(&json!("transport")));
}
