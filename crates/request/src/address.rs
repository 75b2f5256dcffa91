//! Determines the client address of a request: the peer of its connection, or the address that a trusted proxy reports.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderValue};
use foundation::model::Networks;

/// The header in which each proxy appends the address of its own client.
pub const FORWARDED_FOR: &str = "x-forwarded-for";

tokio::task_local! {
    /// The peer of the connection whose requests a task answers. An extension of each request would cost an allocation
    /// per request.
    pub static PEER: SocketAddr;
}

/// Returns the address of the peer of the connection.
pub fn peer() -> Option<IpAddr> {
    PEER.try_with(SocketAddr::ip).ok().map(|peer| peer.to_canonical())
}

/// Returns the address of the client of a request on the connection: that of the peer, or what trusted proxies report.
pub fn client_address(trusted: Option<&Networks>, headers: &HeaderMap) -> Option<IpAddr> {
    let values = || headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
    Some(address_behind(peer()?, trusted, values))
}

/// Returns the address of the client of a request that comes from a peer, with the values of [`FORWARDED_FOR`]. Only trusted
/// proxies are believed: it is the last of their reported addresses that is not a trusted proxy.
pub fn address_behind<'a, V>(
    peer: IpAddr,
    trusted: Option<&Networks>,
    values: impl FnOnce() -> V,
) -> IpAddr
where
    V: DoubleEndedIterator<Item = &'a [u8]>,
{
    let Some(trusted) = trusted.filter(|trusted| trusted.contains(peer)) else { return peer };
    let mut client = peer;
    for value in values().rev() {
        // A proxy may append to what a client has sent, whatever bytes that has.
        for hop in value.rsplit(|byte| *byte == b',') {
            // A value that cannot be parsed was not written by a trusted proxy, and neither was anything before it.
            let Some(address) = parse_address(hop) else { return client };
            client = address.to_canonical();
            if !trusted.contains(client) {
                return client;
            }
        }
    }
    client
}

/// Parses an address, with or without a port.
fn parse_address(hop: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(hop).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn client(peer: &str, forwarded: &[&str]) -> String {
        let trusted = Networks::new(Networks::parse("10.0.0.0/8, fd00::/8").expect("networks"));
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, value.parse().expect("a header"));
        }
        let peer = peer.parse().expect("an address");
        let found = PEER.scope(peer, async { client_address(trusted.as_ref(), &headers) }).await;
        found.expect("an address").to_string()
    }

    #[tokio::test]
    async fn client_address_is_peer_when_peer_is_not_trusted() {
        assert_eq!(client("203.0.113.9:1", &["198.51.100.1"]).await, "203.0.113.9");
        assert_eq!(client("[::ffff:203.0.113.9]:1", &[]).await, "203.0.113.9");
    }

    #[tokio::test]
    async fn client_address_is_peer_when_no_proxy_is_trusted() {
        let mut headers = HeaderMap::new();
        headers.insert(FORWARDED_FOR, "198.51.100.1".parse().expect("a header"));
        let peer = "10.0.0.1:1".parse().expect("an address");

        let found = PEER.scope(peer, async { client_address(None, &headers) }).await;

        assert_eq!(found, Some([10, 0, 0, 1].into()));
    }

    #[tokio::test]
    async fn client_address_is_last_untrusted_when_proxies_are_trusted() {
        let single_header = client("10.0.0.1:1", &["192.0.2.66, 198.51.100.1, 10.0.0.2"]);
        assert_eq!(single_header.await, "198.51.100.1");
        let several_headers =
            client("10.0.0.1:1", &["192.0.2.66", "198.51.100.1:4711", "[fd00::1]:80"]);
        assert_eq!(several_headers.await, "198.51.100.1");
        assert_eq!(client("10.0.0.1:1", &["[2001:db8::1]"]).await, "2001:db8::1");
    }

    #[tokio::test]
    async fn client_address_is_last_untrusted_when_bytes_before_it_are_no_text() {
        assert_eq!(client("10.0.0.1:1", &["\u{ff}, 198.51.100.1"]).await, "198.51.100.1");
        assert_eq!(
            client("10.0.0.1:1", &["\u{ff},198.51.100.1", "10.0.0.2"]).await,
            "198.51.100.1"
        );
    }

    #[tokio::test]
    async fn client_address_is_nearest_known_when_header_is_unreadable() {
        assert_eq!(client("10.0.0.1:1", &[]).await, "10.0.0.1");
        assert_eq!(client("10.0.0.1:1", &["198.51.100.1, nonsense, 10.0.0.2"]).await, "10.0.0.2");
        assert_eq!(client("10.0.0.1:1", &["198.51.100.1, \u{ff}, 10.0.0.2"]).await, "10.0.0.2");
        assert_eq!(client("10.0.0.1:1", &["10.0.0.3, 10.0.0.2"]).await, "10.0.0.3");
    }
}
