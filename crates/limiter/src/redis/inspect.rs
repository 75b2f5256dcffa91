//! Inspects a Redis: its identity, configuration and distance. Read-only.

use std::time::Duration;

use foundation::clock::{Clock, Stopwatch, Timestamp};
use foundation::error::Result;
use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, InfoDict, cmd};

use super::super::Keyspace;
use super::RedisAddress;
use super::primary::PrimaryFinder;

/// The maximum time to connect to Redis, and to receive a reply.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The number of round trips of which the shortest counts.
const ROUND_TRIPS: usize = 5;

/// The state and configuration of a Redis server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisNode {
    pub version: String,
    /// The eviction policy when memory is full, such as `noeviction`.
    pub maxmemory_policy: String,
    pub memory_bytes: u64,
    /// The memory limit. 0 means that the machine's memory is the limit.
    pub memory_max_bytes: u64,
    /// Whether each change is written to an append-only file.
    pub has_append_only_file: bool,
    /// Whether snapshots are written periodically. Absent if the server does not disclose it.
    pub has_snapshots: Option<bool>,
    /// Why it rejects writes until a write to its disk succeeds. Absent if the last one succeeded.
    pub write_rejection: Option<&'static str>,
    /// Whether it replicates another server and is read-only.
    pub is_replica: bool,
    /// Whether it is part of a cluster.
    pub is_clustered: bool,
    /// The state of its cluster as it sees it: `ok` or `fail`.
    pub cluster_state: Option<String>,
    /// The region that it is marked with; absent if there is one region, or on a node of a cluster.
    pub region: Option<String>,
    /// The shortest of several round trips.
    pub round_trip: Duration,
    /// How far its clock is ahead of this machine's.
    pub clock_ahead_ms: i64,
}

/// Inspects every node in the URL. Returns the address of each, and its state or the error.
pub async fn inspect_nodes(
    address: &RedisAddress,
    keyspace: &Keyspace,
    clock: &Clock,
) -> Vec<(String, Result<RedisNode>)> {
    let mut nodes = Vec::new();
    for client in address.list_clients().await {
        match client {
            Ok(client) => {
                // The address without the user and the password.
                let address = client.get_connection_info().addr().to_string();
                nodes.push((address, inspect_node(&client, keyspace, clock).await));
            }
            Err(e) if address.has_sentinel() => {
                nodes.push(("the address that Sentinel names".to_owned(), Err(e)));
            }
            Err(e) => nodes.push(("the address".to_owned(), Err(e))),
        }
    }
    nodes
}

/// Asks each Sentinel in the URL whether enough of them can replace the primary. Returns the address of each, and its reply
/// or the error. Empty: the URL names none.
pub async fn inspect_sentinels(address: &RedisAddress) -> Vec<(String, Result<String>)> {
    let Ok(PrimaryFinder::Sentinel(finder)) = address.finder() else { return Vec::new() };
    let asking = finder.list_sentinels().map(async |(address, client)| {
        let asking = async { check_quorum(&client?, finder.service()).await };
        (address, asking.await)
    });
    join_all(asking).await
}

async fn check_quorum(client: &Client, service: &str) -> Result<String> {
    let mut connection =
        client.get_multiplexed_async_connection_with_config(&connection_config()).await?;
    Ok(cmd("SENTINEL").arg("CKQUORUM").arg(service).query_async(&mut connection).await?)
}

fn connection_config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(TIMEOUT))
        .set_response_timeout(Some(TIMEOUT))
}

async fn inspect_node(client: &Client, keyspace: &Keyspace, clock: &Clock) -> Result<RedisNode> {
    let mut connection =
        client.get_multiplexed_async_connection_with_config(&connection_config()).await?;
    let (round_trip, ahead_ms) = measure_round_trip(&mut connection, clock).await?;
    let info: InfoDict = cmd("INFO").arg("default").query_async(&mut connection).await?;
    let is_clustered = info.get::<u8>("cluster_enabled") == Some(1);
    let cluster_state = match is_clustered {
        false => None,
        true => {
            let reply: InfoDict = cmd("CLUSTER").arg("INFO").query_async(&mut connection).await?;
            reply.get("cluster_state")
        }
    };
    let region = match is_clustered {
        true => None,
        false => cmd("GET").arg(keyspace.region()).query_async(&mut connection).await?,
    };
    let saves = find_option(&mut connection, "save").await;
    let stops_writes = find_option(&mut connection, "stop-writes-on-bgsave-error").await;
    Ok(RedisNode {
        version: info.get("redis_version").unwrap_or_default(),
        maxmemory_policy: info.get("maxmemory_policy").unwrap_or_default(),
        memory_bytes: info.get("used_memory").unwrap_or_default(),
        memory_max_bytes: info.get("maxmemory").unwrap_or_default(),
        has_append_only_file: info.get::<u8>("aof_enabled") == Some(1),
        write_rejection: find_write_rejection(&info, saves.as_deref(), stops_writes.as_deref()),
        has_snapshots: saves.map(|points| !points.is_empty()),
        is_replica: info.get::<String>("role").is_some_and(|role| role != "master"),
        is_clustered,
        cluster_state,
        region,
        round_trip,
        clock_ahead_ms: ahead_ms,
    })
}

/// Returns the value of an option. `None`: the server does not disclose it, as managed Redis services often do not.
async fn find_option(connection: &mut MultiplexedConnection, name: &str) -> Option<String> {
    let reply: Vec<String> =
        cmd("CONFIG").arg(&["GET", name]).query_async(connection).await.ok()?;
    reply.into_iter().nth(1)
}

/// Returns why the server rejects writes. Options that it does not disclose are assumed to have their defaults.
fn find_write_rejection(
    info: &InfoDict,
    saves: Option<&str>,
    stops_writes: Option<&str>,
) -> Option<&'static str> {
    let has_failed = |name: &str| info.get::<String>(name).is_some_and(|status| status != "ok");
    let requires_snapshots = saves != Some("") && stops_writes != Some("no");
    if requires_snapshots && has_failed("rdb_last_bgsave_status") {
        return Some("its last snapshot failed");
    }
    let has_append_only_file = info.get::<u8>("aof_enabled") == Some(1);
    (has_append_only_file && has_failed("aof_last_write_status"))
        .then_some("the last write to its append-only file failed")
}

/// Measures several round trips. Returns the shortest, and how far the server's clock was ahead of this one halfway
/// through it.
async fn measure_round_trip(
    connection: &mut MultiplexedConnection,
    clock: &Clock,
) -> Result<(Duration, i64)> {
    let mut shortest = (Duration::MAX, 0);
    for _ in 0..ROUND_TRIPS {
        let (began, sent_at) = (Stopwatch::new(), clock.now());
        let (seconds, micros): (i64, i64) = cmd("TIME").query_async(connection).await?;
        let (took, now) = (began.elapsed(), Timestamp(seconds * 1_000 + micros / 1_000));
        if took < shortest.0 {
            shortest = (took, now.0 - i64::midpoint(sent_at.0, clock.now().0));
        }
    }
    Ok(shortest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_rejected_when_a_required_write_to_disk_failed() {
        let find = |snapshot: &str, file: &str, saves, stops_writes| {
            let text = format!(
                "rdb_last_bgsave_status:{snapshot}\r\naof_enabled:1\r\naof_last_write_status:{file}\r\n"
            );
            find_write_rejection(&InfoDict::new(&text), saves, stops_writes)
        };

        assert_eq!(find("ok", "ok", Some("3600 1"), Some("yes")), None);
        let unsaved = Some("its last snapshot failed");
        assert_eq!(find("err", "ok", Some("3600 1"), Some("yes")), unsaved);
        assert_eq!(find("err", "ok", None, None), unsaved);
        assert_eq!(find("err", "ok", Some(""), Some("yes")), None);
        assert_eq!(find("err", "ok", Some("3600 1"), Some("no")), None);
        let unwritten = Some("the last write to its append-only file failed");
        assert_eq!(find("ok", "err", Some(""), Some("no")), unwritten);
        let disabled = InfoDict::new("aof_enabled:0\r\naof_last_write_status:err\r\n");
        assert_eq!(find_write_rejection(&disabled, None, None), None);
    }
}
