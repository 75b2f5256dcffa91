//! The address of Redis, and the clients that connect to it.

use std::time::Duration;

use foundation::config::{RedisTls, SentinelUrl};
use foundation::error::{Error, Result};
use foundation::tls;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::{Client, ClientTlsConfig, ConnectionAddr, TlsCertificates};

use super::primary::PrimaryFinder;

/// The schemes of the URL of a Redis Cluster, without and with TLS, and those of its nodes.
const CLUSTER_SCHEMES: [(&str, &str); 2] =
    [("redis-cluster://", "redis://"), ("rediss-cluster://", "rediss://")];
/// What the schemes with TLS begin with.
const TLS_PREFIX: &str = "rediss";

/// Where Redis is, and the certificates of the connections to it.
#[derive(Clone)]
pub struct RedisAddress {
    target: Target,
    /// Present if the connections use TLS.
    certificates: Option<TlsCertificates>,
}

#[derive(Clone)]
enum Target {
    Server(String),
    /// Some nodes of a Redis Cluster, from which the others are discovered.
    Cluster(Vec<String>),
    /// The primary that Redis Sentinel names.
    Sentinel(Box<SentinelUrl>),
}

impl RedisAddress {
    /// Parses a URL. `redis-cluster://[user:password@]host:port[,host:port…]` is a cluster,
    /// `redis-sentinel://[user:password@]host:port[,host:port…]/service` the primary that these Sentinels name, and any
    /// other URL one server. Each form has one with TLS. `tls` has an effect if the URL is one with TLS.
    pub fn new(url: &str, tls: &RedisTls) -> Self {
        let cluster = CLUSTER_SCHEMES
            .into_iter()
            .find_map(|(scheme, node_scheme)| Some((url.strip_prefix(scheme)?, node_scheme)));
        let sentinel = SentinelUrl::is_sentinel(url).then(|| SentinelUrl::parse(url).ok());
        let target = match (cluster, sentinel.flatten()) {
            (Some((rest, scheme)), _) => Target::Cluster(list_node_urls(rest, scheme)),
            (None, Some(sentinel)) => Target::Sentinel(Box::new(sentinel)),
            (None, None) => Target::Server(url.to_owned()),
        };
        let certificates = url.starts_with(TLS_PREFIX).then(|| certificates(tls));
        Self { target, certificates }
    }

    pub fn is_cluster(&self) -> bool {
        matches!(self.target, Target::Cluster(_))
    }

    /// Returns whether Redis Sentinel names the primary.
    pub fn has_sentinel(&self) -> bool {
        matches!(self.target, Target::Sentinel(_))
    }

    /// Returns what finds the server to connect to. Fails if the address is that of a cluster, or not valid.
    pub fn finder(&self) -> Result<PrimaryFinder> {
        match &self.target {
            Target::Server(url) => Ok(PrimaryFinder::Server(Box::new(self.node_client(url)?))),
            Target::Sentinel(url) => {
                Ok(PrimaryFinder::sentinel(SentinelUrl::clone(url), self.certificates.clone()))
            }
            Target::Cluster(_) => Err(Error::Internal("a cluster has several masters".into())),
        }
    }

    /// Returns a client of each server in the URL, or of the primary that Sentinel names.
    pub async fn list_clients(&self) -> Vec<Result<Client>> {
        match &self.target {
            Target::Cluster(urls) => urls.iter().map(|url| self.node_client(url)).collect(),
            Target::Server(_) | Target::Sentinel(_) => {
                let finding = async { Ok(self.finder()?.find().await?) };
                vec![finding.await]
            }
        }
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

    /// Returns the hosts that a password is sent to without TLS, except this machine. Those of Sentinels stand for the
    /// servers that they name.
    pub fn list_unverified_hosts(&self) -> Vec<String> {
        let hosts: Vec<String> = match &self.target {
            Target::Server(url) => self.find_unverified_host(url).into_iter().collect(),
            Target::Cluster(urls) => {
                urls.iter().filter_map(|url| self.find_unverified_host(url)).collect()
            }
            Target::Sentinel(url) => {
                let has_password = url.redis.password.is_some() || url.sentinel.password.is_some();
                let sentinels = url.sentinels.iter().filter(|_| has_password && !url.has_tls);
                sentinels.map(|(host, _)| host.clone()).collect()
            }
        };
        hosts.into_iter().filter(|host| !tls::is_loopback(host)).collect()
    }

    fn find_unverified_host(&self, url: &str) -> Option<String> {
        let client = self.node_client(url).ok()?;
        let info = client.get_connection_info();
        match info.addr() {
            ConnectionAddr::Tcp(host, _) if info.redis_settings().password().is_some() => {
                Some(host.clone())
            }
            _ => None,
        }
    }

    /// Returns a client of the cluster. It sends nothing again: a top-up that is applied twice grants its credits twice.
    pub fn cluster_client(
        &self,
        connection_timeout: Duration,
        response_timeout: Duration,
    ) -> Result<ClusterClient> {
        let urls: &[String] = match &self.target {
            Target::Cluster(urls) => urls,
            Target::Server(_) | Target::Sentinel(_) => &[],
        };
        let mut builder: ClusterClientBuilder =
            ClusterClient::builder(urls.iter().map(String::as_str))
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

    fn node_urls(address: &RedisAddress) -> &[String] {
        match &address.target {
            Target::Server(url) => std::slice::from_ref(url),
            Target::Cluster(urls) => urls,
            Target::Sentinel(_) => &[],
        }
    }

    #[test]
    fn url_is_a_server_unless_it_names_a_cluster_or_sentinels() {
        let server = parse("redis://user:pass@host:1/2");
        assert_eq!(node_urls(&server), ["redis://user:pass@host:1/2"]);
        assert!(!server.is_cluster() && !server.has_sentinel());

        let cluster = parse("redis-cluster://user:p@ss@a:1,b:2/");
        assert_eq!(node_urls(&cluster), ["redis://user:p@ss@a:1", "redis://user:p@ss@b:2"]);
        assert!(cluster.is_cluster() && cluster.certificates.is_none());

        let sentinel = parse("redis-sentinel://user:p@ss@a:1,b:2/counters");
        assert!(sentinel.has_sentinel() && !sentinel.is_cluster());
        assert!(sentinel.certificates.is_none());
        let invalid = parse("redis-sentinel://a:1");
        assert!(invalid.finder().is_err(), "it has no service");
    }

    #[test]
    fn connections_use_tls_when_the_url_says_so() {
        assert!(parse("rediss://host:1").certificates.is_some());
        assert!(parse("rediss-sentinel://host:1/counters").certificates.is_some());
        let cluster = parse("rediss-cluster://a:1,b:2");
        assert_eq!(node_urls(&cluster), ["rediss://a:1", "rediss://b:2"]);
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
        assert_eq!(exposed("redis-sentinel://:pass@a:1,127.0.0.1:1,b/x"), ["a", "b"]);
        assert_eq!(exposed("redis-sentinel://a:1/x?sentinel-password=pass"), ["a"]);
        let others = [
            "redis://redis.example.com:1",
            "redis-sentinel://a:1/x",
            "redis-sentinel://:pass@127.0.0.1:1/x",
            "rediss-sentinel://:pass@a:1/x",
            "redis://:pass@127.0.0.1:1",
            "rediss://:pass@redis.example.com:1",
            "unix:///run/redis.sock?pass=pass",
        ];
        for url in others {
            assert_eq!(exposed(url), Vec::<String>::new(), "{url}");
        }
    }
}
