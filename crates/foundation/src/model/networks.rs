//! Defines lists of networks.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// Networks in CIDR notation, IPv4 or IPv6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Networks(Arc<[IpNet]>);

impl Networks {
    /// The maximum number of networks.
    pub const MAX: usize = 100;

    /// Creates a list of networks. Returns `None` if it is empty.
    pub fn new(networks: Vec<IpNet>) -> Option<Self> {
        if networks.is_empty() { None } else { Some(Self(networks.into())) }
    }

    /// Parses a list of networks and single addresses, separated by commas. The error names the invalid item.
    pub fn parse(list: &str) -> Result<Vec<IpNet>, String> {
        let network = |text: &str| {
            let address = || text.parse::<IpAddr>().map(IpNet::from);
            let message = format!("{text:?} must be a network such as 10.0.0.0/8 or an address");
            text.parse::<IpNet>()
                .map(|network| network.trunc())
                .or_else(|_| address())
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
