//! Where a gateway reaches Keyward, and whether it uses TLS.

use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use super::ServerAddress;

/// The file in which Debian, Ubuntu and Alpine keep the certificates of public authorities.
pub const PUBLIC_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The maximum length of a name in a certificate, in bytes.
const SERVER_NAME_MAX: usize = 253;
/// The maximum length of the path of the file of authorities, in bytes.
const CA_FILE_MAX: usize = 1_024;

/// An address of Keyward, as it is entered: `10.0.0.5:3000`, with `http://` or `https://` before it if it shall be said whether
/// the server listens with TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeywardAddress {
    address: ServerAddress,
    uses_tls: Option<bool>,
}

impl KeywardAddress {
    /// Creates an address without a scheme.
    pub fn without_scheme(address: ServerAddress) -> Self {
        Self { address, uses_tls: None }
    }
}

impl FromStr for KeywardAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (uses_tls, address) =
            match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
                (Some(address), _) => (Some(true), address),
                (None, Some(address)) => (Some(false), address),
                (None, None) => (None, text),
            };
        Ok(Self { address: address.parse()?, uses_tls })
    }
}

/// The servers of Keyward that a gateway asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeywardServers {
    /// At least one.
    pub addresses: Vec<ServerAddress>,
    /// Absent: they listen without TLS.
    pub tls: Option<KeywardTls>,
}

/// How a gateway verifies the certificates of Keyward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeywardTls {
    /// A DNS name that the certificates of all servers have.
    pub server_name: String,
    /// The file with the certificates of the authorities that may issue them, on the machine of the gateway.
    pub ca_file: String,
}

/// What is entered about the certificates of Keyward. Absent: the host of the first address, and public authorities.
#[derive(Debug, Clone, Copy, Default)]
pub struct TlsOptions<'a> {
    pub server_name: Option<&'a str>,
    pub ca_file: Option<&'a str>,
}

/// What is wrong with the entered addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeywardServersError {
    MixedSchemes,
    ServerNameMissing,
    ServerNameInvalid,
    CaFileInvalid,
}

impl KeywardServersError {
    /// Returns the rule that is broken, as the end of a sentence that begins with the name of the field.
    pub fn rule(self) -> String {
        match self {
            Self::MixedSchemes => "must use https for all addresses or for none".to_owned(),
            Self::ServerNameMissing => {
                "is required, because the address is not a DNS name: gateways verify that the certificates of Keyward have it"
                    .to_owned()
            }
            Self::ServerNameInvalid => format!(
                "must be a DNS name of at most {SERVER_NAME_MAX} letters, digits, dots and hyphens, such as keyward.example"
            ),
            Self::CaFileInvalid => format!(
                "must be an absolute path of at most {CA_FILE_MAX} letters, digits, dots, hyphens, underscores and slashes"
            ),
        }
    }
}

impl KeywardServers {
    /// Creates the servers from what is entered. Addresses without a scheme use TLS if `listens_with_tls`.
    ///
    /// # Errors
    /// If addresses with and without TLS are mixed, or if a value cannot stand in a configuration.
    pub fn new(
        entered: Vec<KeywardAddress>,
        options: TlsOptions<'_>,
        listens_with_tls: bool,
    ) -> Result<Self, KeywardServersError> {
        let uses_tls = |server: &KeywardAddress| server.uses_tls.unwrap_or(listens_with_tls);
        let is_secure = entered.iter().any(uses_tls);
        if is_secure && !entered.iter().all(uses_tls) {
            return Err(KeywardServersError::MixedSchemes);
        }
        let addresses: Vec<_> = entered.into_iter().map(|server| server.address).collect();
        let tls = is_secure.then(|| KeywardTls::new(addresses.first(), options)).transpose()?;
        Ok(Self { addresses, tls })
    }
}

impl KeywardTls {
    fn new(
        first: Option<&ServerAddress>,
        options: TlsOptions<'_>,
    ) -> Result<Self, KeywardServersError> {
        let server_name = match options.server_name {
            Some(name) if is_dns_name(name) => name,
            Some(_) => return Err(KeywardServersError::ServerNameInvalid),
            None => first
                .map(ServerAddress::host)
                .filter(|host| is_dns_name(host))
                .ok_or(KeywardServersError::ServerNameMissing)?,
        };
        let ca_file = options.ca_file.unwrap_or(PUBLIC_AUTHORITIES);
        if !is_plain_path(ca_file) {
            return Err(KeywardServersError::CaFileInvalid);
        }
        Ok(Self { server_name: server_name.to_owned(), ca_file: ca_file.to_owned() })
    }
}

/// Returns whether a certificate can have this name. Some gateways cannot verify an IP address.
fn is_dns_name(name: &str) -> bool {
    (1..=SERVER_NAME_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.parse::<IpAddr>().is_err()
}

/// Returns whether a path means the same in the syntax of every gateway, without quotes.
fn is_plain_path(path: &str) -> bool {
    path.len() <= CA_FILE_MAX
        && Path::new(path).has_root()
        && !path.ends_with('/')
        && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(
        texts: &[&str],
        options: TlsOptions<'_>,
        listens_with_tls: bool,
    ) -> Result<Option<KeywardTls>, KeywardServersError> {
        let entered = texts.iter().map(|text| text.parse().expect("an address")).collect();
        KeywardServers::new(entered, options, listens_with_tls).map(|servers| servers.tls)
    }

    fn named(name: &str) -> TlsOptions<'_> {
        TlsOptions { server_name: Some(name), ca_file: None }
    }

    #[test]
    fn tls_is_used_when_the_scheme_says_so_or_this_server_listens_with_it() {
        for (address, listens_with_tls, uses_tls) in [
            ("a.example:1", false, false),
            ("a.example:1", true, true),
            ("http://a.example:1", true, false),
            ("https://a.example:1/", false, true),
        ] {
            let tls = servers(&[address], TlsOptions::default(), listens_with_tls);
            let expected = KeywardTls {
                server_name: "a.example".to_owned(),
                ca_file: PUBLIC_AUTHORITIES.to_owned(),
            };
            assert_eq!(tls, Ok(uses_tls.then_some(expected)), "{address} {listens_with_tls}");
        }
    }

    #[test]
    fn addresses_with_and_without_tls_are_rejected() {
        let mixed = servers(&["https://a:1", "b:1"], TlsOptions::default(), false);
        assert_eq!(mixed, Err(KeywardServersError::MixedSchemes));
        assert!(servers(&["https://a:1", "b:1"], TlsOptions::default(), true).is_ok());
        let mixed = servers(&["http://a:1", "b:1"], TlsOptions::default(), true);
        assert_eq!(mixed, Err(KeywardServersError::MixedSchemes));
    }

    #[test]
    fn server_name_is_a_dns_name_and_required_when_the_host_is_none() {
        for host in ["10.0.0.5:1", "[::1]:1", "under_score:1"] {
            let tls = servers(&[host], TlsOptions::default(), true);
            assert_eq!(tls, Err(KeywardServersError::ServerNameMissing), "{host}");
            assert!(servers(&[host], named("a-b.example"), true).is_ok());
        }
        let longest = "a".repeat(SERVER_NAME_MAX);
        assert!(servers(&["a:1"], named(&longest), true).is_ok());
        let too_long = "a".repeat(SERVER_NAME_MAX + 1);
        for name in ["", "10.0.0.5", "::1", "a b", "a;", "-a", "a\"", &too_long] {
            let tls = servers(&["a:1"], named(name), true);
            assert_eq!(tls, Err(KeywardServersError::ServerNameInvalid), "{name}");
        }
    }

    #[test]
    fn file_of_authorities_is_a_path_that_every_gateway_reads() {
        let tls = |path: &str| {
            let options = TlsOptions { server_name: None, ca_file: Some(path) };
            servers(&["a:1"], options, true)
        };
        let longest = format!("/{}", "a".repeat(CA_FILE_MAX - 1));
        for path in ["/etc/keyward/ca.pem", "/a-b_c", longest.as_str()] {
            assert!(
                tls(path).is_ok_and(|tls| tls.is_some_and(|tls| tls.ca_file == path)),
                "{path}"
            );
        }
        let too_long = format!("/{}", "a".repeat(CA_FILE_MAX));
        for path in ["", "ca.pem", "/", "/etc/", "/a b", "/a;", "/a\"", "/a}", too_long.as_str()] {
            assert_eq!(tls(path), Err(KeywardServersError::CaFileInvalid), "{path}");
        }
    }
}
