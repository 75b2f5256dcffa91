//! Checks that no password crosses a network without a verified certificate.

use foundation::tls::is_loopback;
use limiter::redis::RedisAddress;
use store::inspect::find_unverified_host;
use url::Url;

use super::Finding;

/// The servers that a replica or an embedded server sends passwords to.
#[derive(Default)]
pub struct PasswordTargets<'a> {
    pub database_urls: Vec<&'a str>,
    /// Those of all regions.
    pub redis: Vec<RedisAddress>,
    pub clickhouse_url: Option<&'a Url>,
}

/// Checks the connections to Postgres, Redis and ClickHouse, by their URLs.
pub fn check_transport(targets: &PasswordTargets<'_>) -> Finding {
    let redis = targets.redis.iter().flat_map(RedisAddress::list_unverified_hosts);
    let redis = redis.map(|host| format!("Redis at {host}"));
    let databases = targets.database_urls.iter().filter_map(|url| find_unverified_host(url));
    let databases = databases.map(|host| format!("Postgres at {host}"));
    let clickhouse = targets.clickhouse_url.and_then(find_unverified_clickhouse);
    let clickhouse = clickhouse.map(|host| format!("ClickHouse at {host}"));
    let mut servers: Vec<_> = databases.chain(redis).chain(clickhouse).collect();
    servers.dedup();
    if servers.is_empty() {
        return Finding::ok(
            "transport",
            "no password crosses a network without a verified certificate",
        );
    }
    Finding::warning(
        "transport",
        format!("a password is sent without a verified certificate to {}", servers.join(", ")),
        "use sslmode=verify-full for Postgres, rediss:// for Redis and https:// for ClickHouse, unless the network is \
        private and trusted",
    )
}

/// Returns the host that a password is sent to without TLS. `None`: there is no password, or it stays on this machine, or
/// the certificate is verified.
fn find_unverified_clickhouse(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    let is_exposed = url.scheme() == "http" && url.password().is_some() && !is_loopback(host);
    is_exposed.then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use foundation::config::RedisTls;

    use super::super::Severity;
    use super::*;

    #[test]
    fn password_without_verified_certificate_is_reported() {
        let found = |database: &str, redis: &str| {
            check_transport(&PasswordTargets {
                database_urls: vec![database],
                redis: vec![RedisAddress::new(redis, &RedisTls::default())],
                clickhouse_url: None,
            })
        };

        let verified = found("postgres://u:p@db/k?sslmode=verify-full", "rediss://:p@redis");
        assert_eq!(verified.state, Severity::Ok);
        for local in ["localhost/k", "127.0.0.1/k", "[::1]/k", "db/k?host=/run/postgresql"] {
            let found = found(&format!("postgres://u:p@{local}"), "redis://:p@127.0.0.1");
            assert_eq!(found.state, Severity::Ok, "{local}");
        }
        let none = found("postgres://u@db/k", "redis://redis");
        assert_eq!(none.state, Severity::Ok, "no password is sent");
        for mode in ["", "?sslmode=disable", "?sslmode=require", "?sslmode=verify-ca"] {
            let both = found(&format!("postgres://u:p@db/k{mode}"), "redis://:p@redis");
            assert_eq!(both.state, Severity::Warning);
            assert!(both.found.ends_with("to Postgres at db, Redis at redis"), "{}", both.found);
        }
        let parameter = found("postgres://u@db/k?password=p", "redis://redis");
        assert!(parameter.found.ends_with("to Postgres at db"), "{}", parameter.found);
    }

    #[test]
    fn password_for_clickhouse_without_tls_is_reported() {
        let found = |url: &str| {
            let url = Url::parse(url).expect("a URL");
            check_transport(&PasswordTargets {
                clickhouse_url: Some(&url),
                ..PasswordTargets::default()
            })
        };

        let exposed = found("http://u:p@clickhouse:8123/k");
        assert_eq!(exposed.state, Severity::Warning);
        assert!(exposed.found.ends_with("to ClickHouse at clickhouse"), "{}", exposed.found);
        for url in [
            "https://u:p@clickhouse:8443/k",
            "http://u@clickhouse:8123/k",
            "http://u:p@localhost:8123/k",
            "http://u:p@[::1]:8123/k",
        ] {
            assert_eq!(found(url).state, Severity::Ok, "{url}");
        }
    }
}
