//! Redis: whether it keeps what is counted.

use std::time::Duration;

use foundation::clock::Clock;
use foundation::config::Settings;
use foundation::error::Error;
use limiter::redis::CLUSTER_SCHEME;
use limiter::redis::inspect::{RedisNode, nodes};

use super::{Finding, clocks, millis, size};

/// The oldest version that Keyward is tested with.
const OLDEST: u32 = 7;
/// Of the memory that it may use, from which part on somebody should know, and from which on it is as good as full. In
/// percent.
const WARNING_PERCENT: u64 = 80;
const PROBLEM_PERCENT: u64 = 95;

/// What is found of every node that the URL names.
pub async fn look(settings: &Settings, url: &str, clock: &Clock) -> Vec<Finding> {
    let is_cluster = url.starts_with(CLUSTER_SCHEME);
    let mut findings = Vec::new();
    for (address, node) in nodes(url, clock).await {
        match node {
            Err(e) => findings.push(away(&address, &e)),
            Ok(node) => findings.extend([
                server(&address, &node, is_cluster, settings.redis_timeout_ms),
                memory(&address, &node),
                persistence(&address, &node),
                Finding {
                    check: "redis-clock",
                    ..clocks::compared(&format!("Redis at {address}"), node.ahead_ms)
                },
            ]),
        }
    }
    findings
}

fn away(address: &str, e: &Error) -> Finding {
    Finding::problem(
        "redis",
        format!("Redis at {address} cannot be asked: {}", e.cause()),
        "check that Redis runs, that this machine reaches it, and KEYWARD_REDIS_URL; until then limits are decided as \
        KEYWARD_KEYS_ON_OUTAGE says",
    )
}

fn server(address: &str, node: &RedisNode, is_cluster: bool, timeout_ms: u64) -> Finding {
    let kind = if node.is_clustered { ", of a cluster" } else { "" };
    let trip = millis(node.round_trip);
    let found = format!("Redis {} at {address}{kind}, {trip} away", node.version);
    let timeout = Duration::from_millis(timeout_ms);
    let major: u32 = node.version.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let problem = |found: String, todo: &str| Finding::problem("redis", found, todo);
    match node.cluster_state.as_deref() {
        Some(state) if state != "ok" => {
            let todo = "look with CLUSTER NODES which masters are missing: who has keys in their slots is without Redis";
            return problem(format!("{found}; the state of the cluster is {state}"), todo);
        }
        _ => {}
    }
    if node.is_clustered != is_cluster {
        let todo = match is_cluster {
            true => "write KEYWARD_REDIS_URL as redis://…, for it is one server",
            false => "write KEYWARD_REDIS_URL as redis-cluster://…, for it is part of a cluster",
        };
        return problem(found, todo);
    }
    if node.is_replica && !is_cluster {
        let todo = "set KEYWARD_REDIS_URL to the master: this one cannot be written";
        return problem(format!("{found}, follows another one"), todo);
    }
    if node.round_trip >= timeout {
        let todo = format!(
            "bring it nearer, or raise KEYWARD_REDIS_TIMEOUT_MS above {timeout_ms}: no call to it comes back in time"
        );
        return problem(found, &todo);
    }
    if node.round_trip >= timeout / 2 {
        let todo =
            format!("KEYWARD_REDIS_TIMEOUT_MS is {timeout_ms}: many calls may come too late");
        return Finding::warning("redis", found, todo);
    }
    if major < OLDEST {
        let todo = format!("use Redis {OLDEST} or later: older ones are not tested");
        return Finding::warning("redis", found, todo);
    }
    Finding::ok("redis", found)
}

fn memory(address: &str, node: &RedisNode) -> Finding {
    let RedisNode { maxmemory_policy: when_full, memory_bytes, memory_max_bytes, .. } = node;
    let bound = match memory_max_bytes {
        0 => "no bound of its own".to_owned(),
        max => format!("of {}", size(*max)),
    };
    let found = format!("{} in use, {bound}, {when_full}, at {address}", size(*memory_bytes));
    if when_full != "noeviction" {
        let todo = "set maxmemory-policy noeviction: a counter that is evicted is a limit that begins anew";
        return Finding::problem("redis-memory", found, todo);
    }
    let percent = memory_bytes.saturating_mul(100).checked_div(*memory_max_bytes).unwrap_or(0);
    let todo = "raise maxmemory: a Redis that is full counts nothing, and is as good as away";
    match percent {
        ..WARNING_PERCENT => Finding::ok("redis-memory", found),
        WARNING_PERCENT..PROBLEM_PERCENT => Finding::warning("redis-memory", found, todo),
        PROBLEM_PERCENT.. => Finding::problem("redis-memory", found, todo),
    }
}

fn persistence(address: &str, node: &RedisNode) -> Finding {
    let saves = match node.saves {
        Some(true) => "saves copies",
        Some(false) => "saves no copies",
        None => "does not tell whether it saves copies",
    };
    if node.appends {
        let found = format!("appends each change to a file, {saves}, at {address}");
        return Finding::ok("redis-persistence", found);
    }
    Finding::warning(
        "redis-persistence",
        format!("appends nothing to a file, {saves}, at {address}"),
        "set appendonly yes: after a restart every rate limit begins anew",
    )
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    fn node() -> RedisNode {
        RedisNode {
            version: "7.0.15".into(),
            maxmemory_policy: "noeviction".into(),
            memory_bytes: 0,
            memory_max_bytes: 100,
            appends: true,
            saves: None,
            is_replica: false,
            is_clustered: false,
            cluster_state: None,
            round_trip: Duration::ZERO,
            ahead_ms: 0,
        }
    }

    #[test]
    fn a_redis_that_is_nearly_full_is_a_warning_and_one_that_is_full_a_problem() {
        let states = [79, 80, 94, 95]
            .map(|memory_bytes| memory("x", &RedisNode { memory_bytes, ..node() }).state);

        assert_eq!(states, [Severity::Ok, Severity::Warning, Severity::Warning, Severity::Problem]);
        let unbounded = RedisNode { memory_bytes: u64::MAX, memory_max_bytes: 0, ..node() };
        assert_eq!(memory("x", &unbounded).state, Severity::Ok);
    }

    #[test]
    fn a_redis_that_answers_too_late_is_told() {
        let states = [14, 15, 29, 30].map(|ms| {
            let far = RedisNode { round_trip: Duration::from_millis(ms), ..node() };
            server("x", &far, false, 30).state
        });

        assert_eq!(states, [Severity::Ok, Severity::Warning, Severity::Warning, Severity::Problem]);
    }

    #[test]
    fn an_old_redis_a_follower_and_half_a_cluster_are_told() {
        let old = RedisNode { version: "6.2.14".into(), ..node() };
        let follower = RedisNode { is_replica: true, ..node() };
        let broken = RedisNode { is_clustered: true, cluster_state: Some("fail".into()), ..node() };

        assert_eq!(server("x", &old, false, 30).state, Severity::Warning);
        assert_eq!(server("x", &follower, false, 30).state, Severity::Problem);
        assert_eq!(server("x", &broken, true, 30).state, Severity::Problem);
    }
}
