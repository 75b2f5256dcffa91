//! The address of a server in the configuration of a gateway.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// An address of a server: a name or an IP address, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// Without brackets.
    host: String,
    port: u16,
}

/// The maximum length of the name of a host.
const HOST_MAX: usize = 253;

impl ServerAddress {
    /// Returns the host without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    /// Parses `<host>:<port>`. `http://` before it is ignored, and so is a slash after it.
    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.strip_prefix("http://").unwrap_or(text);
        let address = address.strip_suffix('/').unwrap_or(address);
        let rule = || {
            format!(
                "must be a host and a port, such as 10.0.0.5:3000, [::1]:3000 or keyward.internal:3000, with a name of at \
                most {HOST_MAX} characters and a port from 1 to 65535"
            )
        };
        let (host, port) = address.rsplit_once(':').ok_or_else(rule)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(rule)?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match bracketed {
            Some(host) => host.parse::<Ipv6Addr>().is_ok(),
            None => {
                (1..=HOST_MAX).contains(&host.len())
                    && host.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
            }
        };
        match is_host {
            true => Ok(Self { host: bracketed.unwrap_or(host).to_owned(), port }),
            false => Err(rule()),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_displayed_as_it_was_written() {
        let longest = format!("{}:65535", "a".repeat(HOST_MAX));
        for text in ["10.0.0.5:3000", "[::1]:1", "keyward.internal:3000", longest.as_str()] {
            for written in [text.to_owned(), format!("http://{text}"), format!("http://{text}/")] {
                let parsed: ServerAddress = written.parse().expect("an address");
                assert_eq!(parsed.to_string(), text);
            }
        }
        let address = ServerAddress::from(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 7)));
        assert_eq!((address.host(), address.port()), ("::1", 7));
    }

    #[test]
    fn address_is_rejected_when_host_or_port_is_invalid() {
        let long = format!("{}:1", "a".repeat(HOST_MAX + 1));
        let wrong = [
            "a",
            ":1",
            "a:0",
            "a:65536",
            "a:b",
            "::1:3000",
            "[::1:3000",
            "a b:1",
            "a/b:1",
            "https://a:1",
        ];
        for text in wrong.into_iter().chain([long.as_str()]) {
            let error = text.parse::<ServerAddress>().expect_err(text);
            assert!(error.contains("253") && error.contains("65535"), "{text}: {error}");
        }
    }
}
