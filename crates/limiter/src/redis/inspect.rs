//! What there is to see of a Redis from outside: which one it is, how it is set, how far it is. Nothing is written.

use std::time::Duration;

use foundation::clock::{Clock, Stopwatch, Timestamp};
use foundation::error::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, InfoDict, cmd};

use super::Address;

/// How long a Redis may take to let a connection in, and to answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How many round trips are made to find the shortest.
const TRIPS: usize = 5;

/// A Redis, as it is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisNode {
    pub version: String,
    /// What it does when its memory is full: `noeviction`, or whom it forgets.
    pub maxmemory_policy: String,
    pub memory_bytes: u64,
    /// 0: as much as the machine has.
    pub memory_max_bytes: u64,
    /// Whether it writes each change into a log.
    pub appends: bool,
    /// Whether it writes copies of itself now and then. Absent: it does not tell.
    pub saves: Option<bool>,
    /// Whether it only follows another one, and cannot be written.
    pub is_replica: bool,
    /// Whether it is part of a cluster.
    pub is_clustered: bool,
    /// The state of the cluster that it is part of, as it sees it: `ok` or `fail`.
    pub cluster_state: Option<String>,
    /// The shortest of a few.
    pub round_trip: Duration,
    /// How far its clock is ahead of this machine's.
    pub ahead_ms: i64,
}

/// Every node that the URL names, by its address, and what came of asking it.
pub async fn nodes(url: &str, clock: &Clock) -> Vec<(String, Result<RedisNode>)> {
    let mut nodes = Vec::new();
    for url in Address::parse(url).urls() {
        match Client::open(url.as_str()) {
            Ok(client) => {
                // Without the user and the password.
                let address = client.get_connection_info().addr().to_string();
                nodes.push((address, node(&client, clock).await));
            }
            Err(e) => nodes.push(("the address".to_owned(), Err(e.into()))),
        }
    }
    nodes
}

async fn node(client: &Client, clock: &Clock) -> Result<RedisNode> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(TIMEOUT))
        .set_response_timeout(Some(TIMEOUT));
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let (round_trip, ahead_ms) = measure_round_trip(&mut connection, clock).await?;
    let info: InfoDict = cmd("INFO").arg("default").query_async(&mut connection).await?;
    let is_clustered = info.get::<u8>("cluster_enabled") == Some(1);
    let cluster_state = match is_clustered {
        false => None,
        true => {
            let told: InfoDict = cmd("CLUSTER").arg("INFO").query_async(&mut connection).await?;
            told.get("cluster_state")
        }
    };
    // Whoever offers Redis as a service often forbids this.
    let saves: Option<Vec<String>> =
        cmd("CONFIG").arg(&["GET", "save"]).query_async(&mut connection).await.ok();
    Ok(RedisNode {
        version: info.get("redis_version").unwrap_or_default(),
        maxmemory_policy: info.get("maxmemory_policy").unwrap_or_default(),
        memory_bytes: info.get("used_memory").unwrap_or_default(),
        memory_max_bytes: info.get("maxmemory").unwrap_or_default(),
        appends: info.get::<u8>("aof_enabled") == Some(1),
        saves: saves.map(|told| told.get(1).is_some_and(|points| !points.is_empty())),
        is_replica: info.get::<String>("role").is_some_and(|role| role != "master"),
        is_clustered,
        cluster_state,
        round_trip,
        ahead_ms,
    })
}

/// The shortest of a few round trips, and how far the clock there was ahead of this one halfway through it.
async fn measure_round_trip(
    connection: &mut MultiplexedConnection,
    clock: &Clock,
) -> Result<(Duration, i64)> {
    let mut nearest = (Duration::MAX, 0);
    for _ in 0..TRIPS {
        let (began, asked) = (Stopwatch::new(), clock.now());
        let (seconds, micros): (i64, i64) = cmd("TIME").query_async(connection).await?;
        let (took, now) = (began.elapsed(), Timestamp(seconds * 1_000 + micros / 1_000));
        if took < nearest.0 {
            nearest = (took, now.0 - i64::midpoint(asked.0, clock.now().0));
        }
    }
    Ok(nearest)
}
