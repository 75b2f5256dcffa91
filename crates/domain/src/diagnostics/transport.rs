//! Checks that no password crosses a network without a verified certificate.

use limiter::redis::RedisAddress;
use store::inspect::find_unverified_host;

use super::Finding;

/// Checks the connections to Postgres and Redis, by their URLs.
pub fn check_transport(database_urls: &[&str], redis: &[RedisAddress]) -> Finding {
    let redis = redis.iter().flat_map(RedisAddress::list_unverified_hosts);
    let redis = redis.map(|host| format!("Redis at {host}"));
    let databases = database_urls.iter().filter_map(|url| find_unverified_host(url));
    let mut servers: Vec<_> =
        databases.map(|host| format!("Postgres at {host}")).chain(redis).collect();
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
        "use rediss:// for Redis and sslmode=verify-full for Postgres, unless the network is private and trusted",
    )
}

#[cfg(test)]
mod tests {
    use foundation::config::RedisTls;

    use super::super::Severity;
    use super::*;

    #[test]
    fn password_without_verified_certificate_is_reported() {
        let found = |database: &str, redis: &str| {
            check_transport(&[database], &[RedisAddress::new(redis, &RedisTls::default())])
        };

        let verified = found("postgres://u:p@db/k?sslmode=verify-full", "rediss://:p@redis");
        assert_eq!(verified.state, Severity::Ok);
        let local = found("postgres://u:p@localhost/k", "redis://:p@127.0.0.1");
        assert_eq!(local.state, Severity::Ok);
        let none = found("postgres://u@db/k", "redis://redis");
        assert_eq!(none.state, Severity::Ok, "no password is sent");
        for mode in ["", "?sslmode=prefer", "?sslmode=require"] {
            let both = found(&format!("postgres://u:p@db/k{mode}"), "redis://:p@redis");
            assert_eq!(both.state, Severity::Warning);
            assert!(both.found.ends_with("to Postgres at db, Redis at redis"), "{}", both.found);
        }
    }
}
