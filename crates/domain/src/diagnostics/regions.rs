//! Checks of the regions that share limits and credits: whether their Redis servers are reachable, and whether the
//! settings list the regions that the database knows.

use std::collections::BTreeSet;

use foundation::clock::Clock;
use foundation::config::{RegionSettings, Settings};
use foundation::error::Result;
use foundation::home::Home;
use limiter::Keyspace;
use limiter::redis::RedisAddress;
use limiter::redis::inspect::inspect_nodes;
use store::Store;

use super::{Finding, format_millis};
use crate::context::{find_region_conflict, misplaced_redis_message};

const CHECK: &str = "regions";

/// Checks the Redis of every region; `redis_url` leads to this one's, whose other properties are checked elsewhere.
pub async fn check_servers(
    settings: &Settings,
    redis_url: &str,
    regions: &RegionSettings,
    clock: &Clock,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let keyspace = Keyspace::new(settings.redis_prefix.clone());
    let own = (regions.own, redis_url);
    let others = regions.others.iter().map(|(position, url)| (*position, url.as_str()));
    for (position, url) in std::iter::once(own).chain(others) {
        let region = &regions.names[position];
        let redis = RedisAddress::new(url, &settings.redis_tls);
        for (address, node) in inspect_nodes(&redis, &keyspace, clock).await {
            let marked = node.as_ref().ok().and_then(|node| node.region.clone());
            if let Some(marked) = marked.filter(|marked| marked != region) {
                let found = misplaced_redis_message(region, &marked);
                let todo = format!(
                    "correct the URLs of both regions at each replica. If the Redis at {address} is a copy of that of \
                    {marked}, delete {} in it",
                    keyspace.region()
                );
                findings.push(Finding::problem(CHECK, found, todo));
                continue;
            }
            if position == regions.own {
                continue;
            }
            findings.push(match node {
                Ok(node) if node.is_replica => Finding::problem(
                    CHECK,
                    format!("the Redis of {region} at {address} is a replica of another server"),
                    format!("set the URL of {region} in KEYWARD_REGIONS to the master: a replica is read-only"),
                ),
                Ok(node) => Finding::ok(
                    CHECK,
                    format!(
                        "{region}: Redis {} at {address}, round trip {}",
                        node.version,
                        format_millis(node.round_trip)
                    ),
                ),
                Err(e) => Finding::problem(
                    CHECK,
                    format!("the Redis of {region} at {address} is unreachable: {}", e.innermost_message()),
                    format!(
                        "check that it runs, that this machine can connect to it, and its URL in KEYWARD_REGIONS; until \
                        then the outage policy applies to limits that {region} counts, and changes take up to two \
                        seconds longer"
                    ),
                ),
            });
        }
    }
    findings
}

/// Checks that the settings list the regions that the database knows, in an order that agrees.
pub async fn check_names(regions: &RegionSettings, store: &Store) -> Result<Finding> {
    let mut reader = store.read().await?;
    let (known, homes) = (reader.list_regions().await?, reader.count_homes().await?);
    if let Some(conflict) = find_region_conflict(&regions.names, &known) {
        return Ok(Finding::problem(
            CHECK,
            conflict,
            "correct KEYWARD_REGIONS: a replica does not start with it",
        ));
    }
    let homes = homes.iter().filter_map(|(home, ..)| home.parse::<Home>().ok());
    let homes = homes.map(|home| home.region).filter(|home| !home.is_empty());
    let unlisted: BTreeSet<_> = homes.filter(|home| !regions.names.contains(home)).collect();
    if !unlisted.is_empty() {
        let found = format!(
            "KEYWARD_REGIONS does not list {}, which counts limits of APIs, identities or namespaces",
            unlisted.into_iter().collect::<Vec<_>>().join(", ")
        );
        let todo = "list it, or move what it counts to another region: until then the outage policy applies to these limits";
        return Ok(Finding::problem(CHECK, found, todo));
    }
    let own = &regions.names[regions.own];
    Ok(Finding::ok(CHECK, format!("{}; this is {own}", regions.names.join(", "))))
}
