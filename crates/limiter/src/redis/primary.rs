//! Connects to the primary: the server that the URL names, or the one that Redis Sentinel names at that moment.
//!
//! A connection stays open when Sentinel promotes another server while the old primary is still reachable from here, and
//! counting would go on there. So a replica also asks Sentinel from time to time, and leaves a server that is no longer
//! the primary.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use foundation::clock::Stopwatch;
use foundation::config::{Credentials, SentinelUrl};
use foundation::error::{Error, Result};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo as _,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, TlsMode,
};

/// How long the primary that Sentinel has named is not asked for again to connect to it.
const NAMED_FOR: Duration = Duration::from_secs(2);

/// Finds the primary.
pub enum PrimaryFinder {
    /// The server that the URL names, wherever it leads.
    Server(Box<Client>),
    Sentinel(Box<SentinelFinder>),
}

/// Asks Sentinel for the primary.
pub struct SentinelFinder {
    url: SentinelUrl,
    certificates: Option<TlsCertificates>,
    named: Mutex<Option<NamedPrimary>>,
}

/// The primary that Sentinel has named last.
struct NamedPrimary {
    client: Client,
    address: String,
    since: Stopwatch,
    /// Whether a connection to it has failed since.
    has_failed: bool,
}

impl PrimaryFinder {
    pub fn sentinel(url: SentinelUrl, certificates: Option<TlsCertificates>) -> Self {
        Self::Sentinel(Box::new(SentinelFinder { url, certificates, named: Mutex::default() }))
    }

    /// Returns a client of the primary.
    pub async fn find(&self) -> RedisResult<Client> {
        match self {
            Self::Server(client) => Ok(Client::clone(client)),
            // On the heap: it is rare and large.
            Self::Sentinel(finder) => Box::pin(finder.find()).await,
        }
    }

    /// Connects to the primary. Also returns its address.
    pub async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<(MultiplexedConnection, String)> {
        let client = self.find().await?;
        let connected = client.get_multiplexed_async_connection_with_config(config).await;
        if connected.is_err() {
            self.record_failure();
        }
        Ok((connected?, address_of(&client)))
    }

    /// Records that a connection has failed or leads to a server that is not the primary, so that Sentinel is asked
    /// before the next one.
    pub fn record_failure(&self) {
        if let Self::Sentinel(finder) = self
            && let Some(named) = finder.named.lock().as_mut()
        {
            named.has_failed = true;
        }
    }

    /// Returns whether Sentinel has named another server since it named the one with this address.
    pub fn has_moved_from(&self, address: &str) -> bool {
        match self {
            Self::Server(_) => false,
            Self::Sentinel(finder) => {
                finder.named.lock().as_ref().is_some_and(|named| named.address != address)
            }
        }
    }
}

impl SentinelFinder {
    /// Returns the primary that Sentinel has named within the last seconds, or asks for it. Where Sentinel is far away,
    /// to ask takes longer than a caller waits for a connection.
    async fn find(&self) -> RedisResult<Client> {
        let recent = self.named.lock().as_ref().and_then(|named| {
            let is_recent = !named.has_failed && named.since.elapsed() < NAMED_FOR;
            is_recent.then(|| named.client.clone())
        });
        match recent {
            Some(client) => Ok(client),
            None => self.ask().await,
        }
    }

    /// Asks all Sentinels, until one names a server that confirms to be the primary.
    async fn ask(&self) -> RedisResult<Client> {
        let client = self.sentinel_client()?.async_get_client().await?;
        *self.named.lock() = Some(NamedPrimary {
            address: address_of(&client),
            client: client.clone(),
            since: Stopwatch::new(),
            has_failed: false,
        });
        Ok(client)
    }

    /// Returns the name by which the Sentinels know the primary.
    pub fn service(&self) -> &str {
        &self.url.service
    }

    /// Returns the address and a client of each Sentinel in the URL.
    pub fn list_sentinels(&self) -> impl Iterator<Item = (String, RedisResult<Client>)> {
        self.url.sentinels.iter().map(|(host, port)| {
            let address = sentinel_address(&self.url, host, *port);
            (address.to_string(), self.client_of_sentinel(address))
        })
    }

    fn client_of_sentinel(&self, address: ConnectionAddr) -> RedisResult<Client> {
        let mut settings = RedisConnectionInfo::default();
        let Credentials { user, password } = &self.url.sentinel;
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        if let Some(password) = password {
            settings = settings.set_password(password);
        }
        let info = address.into_connection_info()?.set_redis_settings(settings);
        match &self.certificates {
            Some(certificates) => {
                foundation::tls::install_provider();
                Client::build_with_tls(info, certificates.clone())
            }
            None => Client::open(info),
        }
    }

    fn sentinel_client(&self) -> RedisResult<SentinelClient> {
        let SentinelUrl { sentinels, service, database, .. } = &self.url;
        let address = |(host, port): &(String, u16)| sentinel_address(&self.url, host, *port);
        let mut builder = SentinelClientBuilder::new(
            sentinels.iter().map(address),
            service,
            SentinelServerType::Master,
        )?
        .set_client_to_redis_db(*database);
        let Credentials { user, password } = &self.url.redis;
        if let Some(user) = user {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = password {
            builder = builder.set_client_to_redis_password(password);
        }
        let Credentials { user, password } = &self.url.sentinel;
        if let Some(user) = user {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = password {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if let Some(certificates) = &self.certificates {
            foundation::tls::install_provider();
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_certificates(certificates.clone());
        }
        builder.build()
    }
}

/// Returns the address of a Sentinel.
fn sentinel_address(url: &SentinelUrl, host: &str, port: u16) -> ConnectionAddr {
    let host = host.to_owned();
    match url.has_tls {
        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        false => ConnectionAddr::Tcp(host, port),
    }
}

/// Returns the address of a server, without the user and the password.
fn address_of(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}

/// Creates the connections of the pool, and checks them before they are used again.
pub struct ConnectionManager {
    pub finder: PrimaryFinder,
    config: AsyncConnectionConfig,
    /// The address of the server that the last connection leads to.
    connected: Mutex<Option<String>>,
    pings: AtomicUsize,
}

impl ConnectionManager {
    pub fn new(finder: PrimaryFinder) -> Self {
        // Whoever gets a connection has a timeout, and so has each call; others would cost a timer for each call.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        Self { finder, config, connected: Mutex::default(), pings: AtomicUsize::default() }
    }

    /// Asks Sentinel for the primary. Returns whether the last connection leads to another server.
    pub async fn has_primary_moved(&self) -> Result<bool> {
        let PrimaryFinder::Sentinel(finder) = &self.finder else { return Ok(false) };
        finder.ask().await?;
        let connected = self.connected.lock().clone();
        Ok(connected.is_some_and(|address| self.finder.has_moved_from(&address)))
    }
}

impl Manager for ConnectionManager {
    type Type = MultiplexedConnection;
    type Error = RedisError;

    async fn create(&self) -> RedisResult<MultiplexedConnection> {
        let (connection, address) = self.finder.connect(&self.config).await?;
        *self.connected.lock() = Some(address);
        Ok(connection)
    }

    async fn recycle(
        &self,
        connection: &mut MultiplexedConnection,
        _: &Metrics,
    ) -> RecycleResult<RedisError> {
        let number = self.pings.fetch_add(1, Ordering::Relaxed).to_string();
        let reply: String = redis::cmd("PING").arg(&number).query_async(connection).await?;
        if reply == number {
            return Ok(());
        }
        Err(RecycleError::message("the connection returned the reply to another command"))
    }
}

/// Returns the error of a connection to a server that is no longer the primary.
pub fn moved_error() -> Error {
    RedisError::from((ErrorKind::Io, "Sentinel has promoted another server")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a finder whose Sentinel cannot be reached.
    fn sentinel_finder() -> PrimaryFinder {
        let url = SentinelUrl::parse("redis-sentinel://127.0.0.1:1/counters");
        PrimaryFinder::sentinel(url.expect("a URL"), None)
    }

    fn client(address: &str) -> Client {
        Client::open(format!("redis://{address}")).expect("an address")
    }

    /// Sets which server Sentinel has named a moment ago.
    fn name_primary(finder: &PrimaryFinder, address: &str) {
        let PrimaryFinder::Sentinel(finder) = finder else { panic!("no Sentinel") };
        *finder.named.lock() = Some(NamedPrimary {
            client: client(address),
            address: address.to_owned(),
            since: Stopwatch::new(),
            has_failed: false,
        });
    }

    #[tokio::test]
    async fn sentinel_is_asked_when_no_primary_is_known_or_a_connection_has_failed() {
        let finder = sentinel_finder();
        assert!(finder.find().await.is_err(), "none is known");

        name_primary(&finder, "127.0.0.1:1");
        let found = finder.find().await.expect("the one that was named");
        assert_eq!(address_of(&found), "127.0.0.1:1");

        assert!(finder.connect(&AsyncConnectionConfig::new()).await.is_err());
        assert!(finder.find().await.is_err(), "the connection has failed");
        name_primary(&finder, "127.0.0.1:1");
        finder.record_failure();
        assert!(finder.find().await.is_err(), "a later call has failed");
    }

    #[test]
    fn primary_has_moved_when_sentinel_has_named_another_server() {
        let finder = sentinel_finder();
        assert!(!finder.has_moved_from("127.0.0.1:7001"), "none was named");

        name_primary(&finder, "127.0.0.1:7001");

        assert!(!finder.has_moved_from("127.0.0.1:7001"));
        assert!(finder.has_moved_from("127.0.0.1:7002"));
        let server = PrimaryFinder::Server(Box::new(client("127.0.0.1:7001")));
        assert!(!server.has_moved_from("127.0.0.1:7002"));
    }

    #[test]
    fn sentinels_get_their_own_user_and_password() {
        let url = "redis-sentinel://app:secret@a:1,b:2/counters?sentinel-user=guard&sentinel-password=other";
        let url = SentinelUrl::parse(url).expect("a URL");
        let finder = SentinelFinder { url, certificates: None, named: Mutex::default() };

        let sentinels = finder.list_sentinels().map(|(address, client)| {
            let client = client.expect("a client");
            let settings = client.get_connection_info().redis_settings();
            let [user, password] = [settings.username(), settings.password()];
            format!("{address} {} {}", user.unwrap_or_default(), password.unwrap_or_default())
        });

        assert_eq!(sentinels.collect::<Vec<_>>(), ["a:1 guard other", "b:2 guard other"]);
    }
}
