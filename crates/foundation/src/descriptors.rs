//! Bounds file descriptors, which client connections share with the files of the server itself.

use std::io;

use rlimit::Resource;

use crate::config::{Deployment, Settings};

/// The descriptors that a server reserves for itself in addition to the connections to Postgres and of gateways over
/// gRPC: its files and listeners, Redis, the connections of the metrics listener, and rejected connections until they are
/// closed.
const RESERVED_DESCRIPTORS: u64 = 200;
/// The maximum number of open connections of gateways over gRPC, each of which carries many requests at the same time.
/// A server with a listener for them reserves their descriptors.
pub const GRPC_CONNECTIONS_MAX: usize = 256;

/// Raises the soft limit of this process to its hard limit. Returns the limit that is then in effect.
pub fn raise_limit() -> io::Result<u64> {
    rlimit::increase_nofile_limit(u64::MAX)
}

/// Returns the soft and the hard limit of this process.
pub fn get_limits() -> io::Result<(u64, u64)> {
    Resource::NOFILE.get()
}

/// Returns how many descriptors a server needs at its configured maximum of connections.
pub fn needed_descriptors(settings: &Settings) -> u64 {
    reserved_descriptors(settings) + settings.security.connections_max as u64
}

/// Returns how many client connections a server may have if it may open `limit` files: the configured maximum, unless
/// fewer fit.
pub fn connections_max(settings: &Settings, limit: u64) -> usize {
    let room = limit.saturating_sub(reserved_descriptors(settings)).max(1);
    settings.security.connections_max.min(usize::try_from(room).unwrap_or(usize::MAX))
}

/// Returns how many descriptors the server reserves for itself.
fn reserved_descriptors(settings: &Settings) -> u64 {
    let of_databases = match settings.deployment {
        Deployment::Embedded { .. } => 0,
        Deployment::Replica { .. } => {
            let servers = 1 + u64::from(settings.database_read_url.is_some());
            servers * u64::from(settings.database_connections_max)
        }
    };
    let of_gateways = match settings.security.grpc_listen {
        Some(_) => GRPC_CONNECTIONS_MAX as u64,
        None => 0,
    };
    RESERVED_DESCRIPTORS + of_databases + of_gateways
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn connections_of_gateways_are_reserved_when_grpc_is_served() {
        let mut settings = Config::default().validate().expect("valid settings");
        let without = connections_max(&settings, 1_000);
        settings.security.grpc_listen = Some(([127, 0, 0, 1], 3001).into());
        let with = connections_max(&settings, 1_000);

        assert_eq!((without, with), (800, 544));
        assert_eq!(needed_descriptors(&settings), 10_456);
    }
}
