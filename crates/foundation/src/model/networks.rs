//! Defines lists of networks.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};

/// Networks in CIDR notation, IPv4 or IPv6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Networks(Arc<[IpNet]>);

impl Networks {
    /// The maximum number of networks.
    pub const MAX: usize = 100;

    /// Creates a list of networks. Returns `None` if it is empty.
    pub fn new(networks: Vec<IpNet>) -> Option<Self> {
        let networks: Arc<[IpNet]> = networks.into_iter().map(to_canonical).collect();
        if networks.is_empty() { None } else { Some(Self(networks)) }
    }

    /// Parses a list of networks and single addresses, separated by commas. The error names the invalid item.
    pub fn parse(list: &str) -> Result<Vec<IpNet>, String> {
        let network = |text: &str| {
            let address = || text.parse::<IpAddr>().map(IpNet::from);
            let message = format!("{text:?} must be a network such as 10.0.0.0/8 or an address");
            text.parse::<IpNet>()
                .map(|network| network.trunc())
                .or_else(|_| address())
                .map(to_canonical)
                .map_err(|_| message)
        };
        list.split(',').map(str::trim).filter(|text| !text.is_empty()).map(network).collect()
    }

    pub fn as_slice(&self) -> &[IpNet] {
        &self.0
    }

    /// Returns whether the address is in one of the networks. An IPv4-mapped IPv6 address counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    pub fn to_strings(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}

/// Returns the IPv4 network that a network of IPv4-mapped IPv6 addresses stands for: it would contain no address, because
/// such addresses count as IPv4 addresses.
fn to_canonical(network: IpNet) -> IpNet {
    let IpNet::V6(mapped) = network else { return network };
    let address = mapped.addr().to_ipv4_mapped();
    let prefix = mapped.prefix_len().checked_sub(96);
    match (address, prefix) {
        (Some(address), Some(prefix)) => Ipv4Net::new(address, prefix).map_or(network, IpNet::V4),
        _ => network,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_mapped_network_is_the_ipv4_network() {
        let list = "::ffff:192.0.2.7, ::ffff:10.1.2.3/104, ::ffff:0:0/96, ::ffff:0:0/95, fd00::/8";

        let networks = Networks::new(Networks::parse(list).expect("networks")).expect("some");

        let expected = ["192.0.2.7/32", "10.0.0.0/8", "0.0.0.0/0", "::fffe:0:0/95", "fd00::/8"];
        assert_eq!(networks.to_strings(), expected);
        let stored = Networks::new(vec!["::ffff:192.0.2.7/128".parse().expect("a network")]);
        let contains = |address: &str| {
            let address = address.parse().expect("an address");
            stored.as_ref().is_some_and(|networks| networks.contains(address))
        };
        assert!(contains("192.0.2.7") && contains("::ffff:192.0.2.7") && !contains("192.0.2.8"));
    }
}
