//! Checks of Redis: version, topology, round trip, memory, persistence and clock.

use std::time::Duration;

use foundation::clock::Clock;
use foundation::config::Settings;
use foundation::distance::CALL_TIMEOUT_MAX;
use foundation::error::Error;
use limiter::Keyspace;
use limiter::redis::RedisAddress;
use limiter::redis::inspect::{RedisNode, inspect_nodes};

use super::{Finding, clocks, format_millis, format_size};

/// The oldest major version that Keyward is tested with.
const VERSION_MIN: u32 = 7;
/// The shares of `maxmemory` in use from which a finding is a warning and a problem, in percent.
const MEMORY_WARNING_PERCENT: u64 = 80;
const MEMORY_PROBLEM_PERCENT: u64 = 95;

/// Checks every node that the URL names.
pub async fn check_redis(settings: &Settings, redis: &RedisAddress, clock: &Clock) -> Vec<Finding> {
    let is_cluster = redis.is_cluster();
    let mut findings = Vec::new();
    let keyspace = Keyspace::new(settings.redis_prefix.clone());
    for (address, node) in inspect_nodes(redis, &keyspace, clock).await {
        match node {
            Err(e) => findings.push(unreachable_finding(&address, &e)),
            Ok(node) => findings.extend([
                check_server(&address, &node, is_cluster, settings.redis_timeout_ms),
                check_memory(&address, &node),
                check_persistence(&address, &node),
                Finding {
                    check: "redis-clock",
                    ..clocks::compare_clock(&format!("Redis at {address}"), node.clock_ahead_ms)
                },
            ]),
        }
    }
    findings
}

fn unreachable_finding(address: &str, e: &Error) -> Finding {
    Finding::problem(
        "redis",
        format!("Redis at {address} is unreachable: {}", e.innermost_message()),
        "check that Redis runs, that this machine can connect to it, and KEYWARD_REDIS_URL; until then the outage \
        policy applies to limits (KEYWARD_KEYS_ON_OUTAGE for those of keys)",
    )
}

fn check_server(address: &str, node: &RedisNode, is_cluster: bool, timeout_ms: u64) -> Finding {
    let kind = if node.is_clustered { ", of a cluster" } else { "" };
    let round_trip = format_millis(node.round_trip);
    let found = format!("Redis {} at {address}{kind}, round trip {round_trip}", node.version);
    let timeout = Duration::from_millis(timeout_ms).max(CALL_TIMEOUT_MAX);
    let major: u32 = node.version.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let problem = |found: String, todo: &str| Finding::problem("redis", found, todo);
    match node.cluster_state.as_deref() {
        Some(state) if state != "ok" => {
            let todo = "list the missing masters with CLUSTER NODES: keys in their slots are without Redis";
            return problem(format!("{found}; the state of the cluster is {state}"), todo);
        }
        _ => {}
    }
    if node.is_clustered != is_cluster {
        let todo = match is_cluster {
            true => "set KEYWARD_REDIS_URL to redis://…: this is a single server",
            false => "set KEYWARD_REDIS_URL to redis-cluster://…: this server is part of a cluster",
        };
        return problem(found, todo);
    }
    if node.is_replica && !is_cluster {
        let todo = "set KEYWARD_REDIS_URL to the master: a replica is read-only";
        return problem(format!("{found}, a replica of another server"), todo);
    }
    if node.round_trip >= timeout {
        let todo = format!(
            "move Redis closer, or raise KEYWARD_REDIS_TIMEOUT_MS above {}: every call times out",
            timeout.as_millis()
        );
        return problem(found, &todo);
    }
    if node.round_trip >= timeout / 2 {
        let todo = format!(
            "a call may take {}: many calls may time out; KEYWARD_REDIS_TIMEOUT_MS is {timeout_ms}",
            format_millis(timeout)
        );
        return Finding::warning("redis", found, todo);
    }
    if major < VERSION_MIN {
        let todo = format!("use Redis {VERSION_MIN} or later: older versions are not tested");
        return Finding::warning("redis", found, todo);
    }
    Finding::ok("redis", found)
}

fn check_memory(address: &str, node: &RedisNode) -> Finding {
    let RedisNode { maxmemory_policy, memory_bytes, memory_max_bytes, .. } = node;
    let bound = match memory_max_bytes {
        0 => "no maxmemory".to_owned(),
        max => format!("of {}", format_size(*max)),
    };
    let found =
        format!("{} in use, {bound}, {maxmemory_policy}, at {address}", format_size(*memory_bytes));
    if maxmemory_policy != "noeviction" {
        let todo =
            "set maxmemory-policy noeviction: a limit starts from zero when its counter is evicted";
        return Finding::problem("redis-memory", found, todo);
    }
    let percent = memory_bytes.saturating_mul(100).checked_div(*memory_max_bytes).unwrap_or(0);
    let todo = "raise maxmemory: when Redis is full, it rejects writes, as if it were unreachable";
    match percent {
        ..MEMORY_WARNING_PERCENT => Finding::ok("redis-memory", found),
        MEMORY_WARNING_PERCENT..MEMORY_PROBLEM_PERCENT => {
            Finding::warning("redis-memory", found, todo)
        }
        MEMORY_PROBLEM_PERCENT.. => Finding::problem("redis-memory", found, todo),
    }
}

fn check_persistence(address: &str, node: &RedisNode) -> Finding {
    let snapshots = match node.has_snapshots {
        Some(true) => "RDB snapshots enabled",
        Some(false) => "RDB snapshots disabled",
        None => "RDB snapshots unknown",
    };
    if let Some(reason) = node.write_rejection {
        return Finding::problem(
            "redis-persistence",
            format!("Redis at {address} rejects writes: {reason}"),
            "free its disk and make its directory writable (the log of Redis has the cause), then run BGSAVE; until then \
            limits follow the outage policy",
        );
    }
    if node.has_append_only_file {
        let found = format!("append-only file enabled, {snapshots}, at {address}");
        return Finding::ok("redis-persistence", found);
    }
    Finding::warning(
        "redis-persistence",
        format!("append-only file disabled, {snapshots}, at {address}"),
        "set appendonly yes: without it, every rate limit starts from zero after a restart",
    )
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    fn redis_node() -> RedisNode {
        RedisNode {
            version: "7.0.15".into(),
            maxmemory_policy: "noeviction".into(),
            memory_bytes: 0,
            memory_max_bytes: 100,
            has_append_only_file: true,
            has_snapshots: None,
            write_rejection: None,
            is_replica: false,
            is_clustered: false,
            cluster_state: None,
            region: None,
            round_trip: Duration::ZERO,
            clock_ahead_ms: 0,
        }
    }

    #[test]
    fn redis_memory_is_a_warning_from_80_percent_and_a_problem_from_95() {
        let states = [79, 80, 94, 95].map(|memory_bytes| {
            check_memory("x", &RedisNode { memory_bytes, ..redis_node() }).state
        });

        assert_eq!(states, [Severity::Ok, Severity::Warning, Severity::Warning, Severity::Problem]);
        let unbounded = RedisNode { memory_bytes: u64::MAX, memory_max_bytes: 0, ..redis_node() };
        assert_eq!(check_memory("x", &unbounded).state, Severity::Ok);
    }

    #[test]
    fn redis_persistence_is_a_problem_when_writes_are_rejected() {
        let unsaved = RedisNode { write_rejection: Some("no disk"), ..redis_node() };
        let transient = RedisNode { has_append_only_file: false, ..redis_node() };

        let states =
            [unsaved, transient, redis_node()].map(|node| check_persistence("x", &node).state);
        assert_eq!(states, [Severity::Problem, Severity::Warning, Severity::Ok]);
    }

    #[test]
    fn redis_round_trip_is_reported_when_near_or_above_timeout() {
        let states = |timeout_ms| {
            [499, 500, 999, 1_000].map(|ms| {
                let far = RedisNode { round_trip: Duration::from_millis(ms), ..redis_node() };
                check_server("x", &far, false, timeout_ms).state
            })
        };

        let (ok, warning) = (Severity::Ok, Severity::Warning);
        assert_eq!(states(40), [ok, warning, warning, Severity::Problem]);
        assert_eq!(states(2_000), [ok, ok, ok, warning]);
    }

    #[test]
    fn redis_is_reported_when_old_or_replica_or_cluster_is_broken() {
        let old = RedisNode { version: "6.2.14".into(), ..redis_node() };
        let follower = RedisNode { is_replica: true, ..redis_node() };
        let broken =
            RedisNode { is_clustered: true, cluster_state: Some("fail".into()), ..redis_node() };

        assert_eq!(check_server("x", &old, false, 30).state, Severity::Warning);
        assert_eq!(check_server("x", &follower, false, 30).state, Severity::Problem);
        assert_eq!(check_server("x", &broken, true, 30).state, Severity::Problem);
    }
}
