//! The address of Redis, and the clients that connect to it.

use std::time::Duration;

use foundation::config::RedisTls;
use foundation::error::Result;
use foundation::tls;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::{Client, ClientTlsConfig, ConnectionAddr, TlsCertificates};

/// The schemes of the URL of a Redis Cluster, without and with TLS, and those of its nodes.
const CLUSTER_SCHEMES: [(&str, &str); 2] =
    [("redis-cluster://", "redis://"), ("rediss-cluster://", "rediss://")];
/// The scheme of a server with TLS.
const TLS_SCHEME: &str = "rediss://";

/// Where Redis is, and the certificates of the connections to it.
#[derive(Clone)]
pub struct RedisAddress {
    /// The server, or some nodes of a Redis Cluster, from which the others are discovered.
    urls: Vec<String>,
    is_cluster: bool,
    /// Present if the connections use TLS.
    certificates: Option<TlsCertificates>,
}

impl RedisAddress {
    /// Parses a URL. `redis-cluster://[user:password@]host:port[,host:port…]` is a cluster, `rediss-cluster://…` is one
    /// with TLS; any other URL is one server. `tls` has an effect if the URL is one with TLS.
    pub fn new(url: &str, tls: &RedisTls) -> Self {
        let cluster = CLUSTER_SCHEMES
            .into_iter()
            .find_map(|(scheme, node_scheme)| Some((url.strip_prefix(scheme)?, node_scheme)));
        let urls = match cluster {
            Some((rest, scheme)) => list_node_urls(rest, scheme),
            None => vec![url.to_owned()],
        };
        let has_tls = urls.iter().any(|url| url.starts_with(TLS_SCHEME));
        Self {
            urls,
            is_cluster: cluster.is_some(),
            certificates: has_tls.then(|| certificates(tls)),
        }
    }

    pub fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Returns a client of the server.
    pub fn client(&self) -> Result<Client> {
        self.node_client(&self.urls[0])
    }

    /// Returns a client of each server in the URL.
    pub fn clients(&self) -> impl Iterator<Item = Result<Client>> {
        self.urls.iter().map(|url| self.node_client(url))
    }

    fn node_client(&self, url: &str) -> Result<Client> {
        Ok(match &self.certificates {
            Some(certificates) => {
                tls::install_provider();
                Client::build_with_tls(url, certificates.clone())?
            }
            None => Client::open(url)?,
        })
    }

    /// Returns the hosts that a password is sent to without TLS, except this machine.
    pub fn list_unverified_hosts(&self) -> Vec<String> {
        let clients = self.clients().filter_map(Result::ok);
        let hosts = clients.filter_map(|client| {
            let info = client.get_connection_info();
            match info.addr() {
                ConnectionAddr::Tcp(host, _)
                    if info.redis_settings().password().is_some() && !tls::is_loopback(host) =>
                {
                    Some(host.clone())
                }
                _ => None,
            }
        });
        hosts.collect()
    }

    /// Returns a client of the cluster. It sends nothing again: a top-up that is applied twice grants its credits twice.
    pub fn cluster_client(
        &self,
        connection_timeout: Duration,
        response_timeout: Duration,
    ) -> Result<ClusterClient> {
        let mut builder: ClusterClientBuilder =
            ClusterClient::builder(self.urls.iter().map(String::as_str))
                .connection_timeout(connection_timeout)
                .response_timeout(response_timeout)
                .retries(0);
        if let Some(certificates) = &self.certificates {
            tls::install_provider();
            builder = builder.certs(certificates.clone());
        }
        Ok(builder.build()?)
    }
}

fn list_node_urls(rest: &str, scheme: &str) -> Vec<String> {
    let (user, nodes) = match rest.rsplit_once('@') {
        Some((user, nodes)) => (format!("{user}@"), nodes),
        None => (String::new(), rest),
    };
    let nodes = nodes.trim_end_matches('/').split(',');
    nodes.map(|node| format!("{scheme}{user}{node}")).collect()
}

fn certificates(tls: &RedisTls) -> TlsCertificates {
    let client_tls = tls.client.as_ref().map(|client| ClientTlsConfig {
        client_cert: client.certificate.clone(),
        client_key: client.key.clone(),
    });
    TlsCertificates { client_tls, root_cert: tls.authority.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> RedisAddress {
        RedisAddress::new(url, &RedisTls::default())
    }

    #[test]
    fn url_is_a_server_unless_it_names_a_cluster() {
        let server = parse("redis://user:pass@host:1/2");
        assert_eq!(
            (server.urls, server.is_cluster),
            (vec!["redis://user:pass@host:1/2".into()], false)
        );

        let cluster = parse("redis-cluster://user:p@ss@a:1,b:2/");
        assert_eq!(cluster.urls, ["redis://user:p@ss@a:1", "redis://user:p@ss@b:2"]);
        assert!(cluster.is_cluster && cluster.certificates.is_none());
    }

    #[test]
    fn connections_use_tls_when_the_url_says_so() {
        assert!(parse("rediss://host:1").certificates.is_some());
        let cluster = parse("rediss-cluster://a:1,b:2");
        assert_eq!(cluster.urls, ["rediss://a:1", "rediss://b:2"]);
        assert!(cluster.certificates.is_some());
        for url in ["redis://host:1", "unix:///run/redis.sock", "redis+unix:///run/redis.sock"] {
            assert!(parse(url).certificates.is_none(), "{url}");
        }
    }

    #[test]
    fn hosts_that_get_a_password_without_tls_are_listed() {
        let exposed = |url| parse(url).list_unverified_hosts();
        assert_eq!(exposed("redis://:pass@redis.example.com:1"), ["redis.example.com"]);
        assert_eq!(
            exposed("redis-cluster://u:pass@10.0.0.1:1,10.0.0.2:1"),
            ["10.0.0.1", "10.0.0.2"]
        );
        let others = [
            "redis://redis.example.com:1",
            "redis://:pass@127.0.0.1:1",
            "rediss://:pass@redis.example.com:1",
            "unix:///run/redis.sock?pass=pass",
        ];
        for url in others {
            assert_eq!(exposed(url), Vec::<String>::new(), "{url}");
        }
    }
}
