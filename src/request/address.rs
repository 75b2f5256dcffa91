//! From where a request comes: the other end of its connection, or what a trusted proxy says of it.

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;
use foundation::model::Networks;

/// As a proxy writes it: each adds the address that it was asked from at the end.
const FORWARDED_FOR: &str = "x-forwarded-for";

tokio::task_local! {
    /// Where the connection comes from whose requests a task answers. An extension of each request
    /// would cost each an allocation.
    pub static PEER: SocketAddr;
}

/// The address of the client. Only what trusted proxies say is believed: of the addresses that they have
/// added, the last one that is not one of theirs.
pub fn of_client(trusted: Option<&Networks>, headers: &HeaderMap) -> Option<IpAddr> {
    let peer = PEER.try_with(SocketAddr::ip).ok()?.to_canonical();
    let Some(trusted) = trusted.filter(|trusted| trusted.contain(peer)) else { return Some(peer) };
    let mut client = peer;
    for value in headers.get_all(FORWARDED_FOR).iter().rev() {
        let Ok(hops) = value.to_str() else { return Some(client) };
        for hop in hops.rsplit(',') {
            // What cannot be read was not written by one of ours; nor was anything before it.
            let Some(address) = address(hop.trim()) else { return Some(client) };
            client = address.to_canonical();
            if !trusted.contain(client) {
                return Some(client);
            }
        }
    }
    Some(client)
}

/// With a port or without.
fn address(text: &str) -> Option<IpAddr> {
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
        let found = PEER.scope(peer, async { of_client(trusted.as_ref(), &headers) }).await;
        found.expect("an address").to_string()
    }

    #[tokio::test]
    async fn a_stranger_is_who_it_is_whatever_it_says() {
        assert_eq!(client("203.0.113.9:1", &["198.51.100.1"]).await, "203.0.113.9");
        assert_eq!(client("[::ffff:203.0.113.9]:1", &[]).await, "203.0.113.9");
    }

    #[tokio::test]
    async fn header_means_nothing_when_no_proxy_is_trusted() {
        let mut headers = HeaderMap::new();
        headers.insert(FORWARDED_FOR, "198.51.100.1".parse().expect("a header"));
        let peer = "10.0.0.1:1".parse().expect("an address");

        let found = PEER.scope(peer, async { of_client(None, &headers) }).await;

        assert_eq!(found, Some([10, 0, 0, 1].into()));
    }

    #[tokio::test]
    async fn a_trusted_proxy_is_believed_as_far_as_the_last_one_that_is_none() {
        let through = client("10.0.0.1:1", &["192.0.2.66, 198.51.100.1, 10.0.0.2"]);
        assert_eq!(through.await, "198.51.100.1");
        let by_lines = client("10.0.0.1:1", &["192.0.2.66", "198.51.100.1:4711", "[fd00::1]:80"]);
        assert_eq!(by_lines.await, "198.51.100.1");
        assert_eq!(client("10.0.0.1:1", &["[2001:db8::1]"]).await, "2001:db8::1");
    }

    #[tokio::test]
    async fn where_proxies_say_nothing_that_can_be_read_the_nearest_known_is_meant() {
        assert_eq!(client("10.0.0.1:1", &[]).await, "10.0.0.1");
        assert_eq!(client("10.0.0.1:1", &["198.51.100.1, nonsense, 10.0.0.2"]).await, "10.0.0.2");
        assert_eq!(client("10.0.0.1:1", &["10.0.0.3, 10.0.0.2"]).await, "10.0.0.3");
    }
}
