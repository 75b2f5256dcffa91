//! Settings of Redis: where it is, and how it is reached.

use std::path::{Path, PathBuf};

use clap::Args;
use redis::IntoConnectionInfo as _;

use super::regions::REGIONS;
use super::sentinel::{self, SentinelUrl};
use super::setting::NumberSetting;
use super::values::{load_secret, validate_url_scheme};
use crate::tls;

/// The settings as written on the command line or in the environment.
#[derive(Args, Clone, Default)]
pub struct RedisConfig {
    /// Redis URL, such as `redis://host:6379`, `rediss://host:6379` with TLS, `redis-cluster://host:7000,host:7001` for
    /// a Redis Cluster, or `redis-sentinel://host:26379,host:26379/service` for Redis Sentinel; requires a database
    #[arg(long, env = REDIS_URL, global = true, hide_env_values = true)]
    redis_url: Option<String>,
    /// File that contains the Redis URL
    #[arg(long, env = "KEYWARD_REDIS_URL_FILE", global = true)]
    redis_url_file: Option<PathBuf>,
    /// File with the certificates (PEM) of the authorities that sign the certificate of Redis [default: those of the web]
    #[arg(long, env = AUTHORITY, global = true)]
    redis_tls_ca: Option<PathBuf>,
    /// File with the certificate (PEM) that this replica presents to Redis [default: none]
    #[arg(long, env = CERTIFICATE, global = true)]
    redis_tls_cert: Option<PathBuf>,
    /// File with the private key (PEM) of that certificate
    #[arg(long, env = PRIVATE_KEY, global = true)]
    redis_tls_key: Option<PathBuf>,
    /// Maximum time that a request waits for Redis, in milliseconds; four round trips, at most a second, if that is more
    #[arg(long, env = TIMEOUT_MS.name, global = true, default_value = TIMEOUT_MS)]
    redis_timeout_ms: Option<String>,
    /// Prefix of all names in Redis
    #[arg(long, env = "KEYWARD_REDIS_PREFIX", global = true, default_value = PREFIX)]
    redis_prefix: Option<String>,
}

const REDIS_URL: &str = "KEYWARD_REDIS_URL";
const AUTHORITY: &str = "KEYWARD_REDIS_TLS_CA";
const CERTIFICATE: &str = "KEYWARD_REDIS_TLS_CERT";
const PRIVATE_KEY: &str = "KEYWARD_REDIS_TLS_KEY";
pub const SCHEMES: [&str; 8] = [
    "redis://",
    "rediss://",
    "redis-cluster://",
    "rediss-cluster://",
    sentinel::SCHEMES[0],
    sentinel::SCHEMES[1],
    "redis+unix://",
    "unix://",
];
const TIMEOUT_MS: NumberSetting =
    NumberSetting { name: "KEYWARD_REDIS_TIMEOUT_MS", default: 40, min: 1, max: 10_000 };
const PREFIX: &str = "kw:";

/// The certificates of connections to Redis, in PEM.
#[derive(Clone, Default)]
pub struct RedisTls {
    /// The authorities that sign the certificate of Redis. Absent: those of the web.
    pub authority: Option<Vec<u8>>,
    /// What this replica presents. Absent: nothing.
    pub client: Option<ClientCertificate>,
}

/// A certificate with its private key, in PEM.
#[derive(Clone)]
pub struct ClientCertificate {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl RedisConfig {
    /// Returns the URL.
    pub fn url(&self) -> Result<Option<String>, String> {
        load_secret(REDIS_URL, self.redis_url.as_ref(), self.redis_url_file.as_deref())
    }

    /// Validates the URL of this replica's Redis and those of other regions, and returns the certificates of connections
    /// to them.
    pub fn tls<'a>(
        &self,
        url: Option<&'a str>,
        others: impl Iterator<Item = &'a str>,
    ) -> Result<RedisTls, String> {
        if let Some(url) = url {
            validate_url_scheme(REDIS_URL, url, &SCHEMES)?;
        }
        let own = url.map(|url| (REDIS_URL, url));
        let urls: Vec<_> = own.into_iter().chain(others.map(|url| (REGIONS, url))).collect();
        if let Some((name, _)) = urls.iter().find(|(_, url)| url.ends_with("#insecure")) {
            return Err(format!(
                "a URL in {name} ends with #insecure: the certificate of Redis is always verified; name the one that \
                signs it with {AUTHORITY}"
            ));
        }
        for (name, url) in urls.iter().filter(|(_, url)| SentinelUrl::is_sentinel(url)) {
            SentinelUrl::parse(url).map_err(|fault| format!("a URL in {name}: {fault}"))?;
        }
        for (name, url) in urls.iter().filter(|(_, url)| is_single_server(url)) {
            url.into_connection_info().map_err(|e| {
                format!(
                    "a URL in {name} is not valid: {e}; percent-encode special characters in it"
                )
            })?;
        }
        let has_tls = urls.iter().any(|(_, url)| url.starts_with("rediss"));
        let files = [
            (AUTHORITY, &self.redis_tls_ca),
            (CERTIFICATE, &self.redis_tls_cert),
            (PRIVATE_KEY, &self.redis_tls_key),
        ];
        if let Some((name, _)) = files.iter().find(|(_, path)| path.is_some() && !has_tls) {
            return Err(format!(
                "{name} must be used with a {REDIS_URL} that begins with rediss://, rediss-cluster:// or rediss-sentinel://"
            ));
        }
        let [authority, certificate, key] = files;
        let authority = match authority {
            (name, Some(path)) => {
                let pem = read_file(name, path)?;
                tls::validate_authority(&pem).map_err(|e| describe(name, path, &e))?;
                Some(pem)
            }
            (_, None) => None,
        };
        let client = match (certificate, key) {
            ((name, Some(path)), (key_name, Some(key_path))) => {
                let (certificate, key) = (read_file(name, path)?, read_file(key_name, key_path)?);
                tls::validate_certificate(&certificate, &key).map_err(|e| {
                    format!(
                        "{} and {} of {name} and {key_name}: {e}",
                        path.display(),
                        key_path.display()
                    )
                })?;
                Some(ClientCertificate { certificate, key })
            }
            ((_, None), (_, None)) => None,
            _ => return Err(format!("{CERTIFICATE} and {PRIVATE_KEY}: set both, or neither")),
        };
        Ok(RedisTls { authority, client })
    }

    pub fn timeout_ms(&self) -> Result<u64, String> {
        TIMEOUT_MS.parse(self.redis_timeout_ms.as_deref())
    }

    pub fn prefix(&self) -> Result<String, String> {
        let prefix = self.redis_prefix.clone().unwrap_or_else(|| PREFIX.into());
        // A brace would change the hash tag; the other characters would only be hard to read.
        if prefix.len() <= 64 && prefix.chars().all(|c| c.is_ascii_graphic() && !"{}".contains(c)) {
            return Ok(prefix);
        }
        Err("KEYWARD_REDIS_PREFIX must be at most 64 printable ASCII characters \
            without spaces and braces"
            .into())
    }
}

fn is_single_server(url: &str) -> bool {
    let is_cluster = ["redis-cluster://", "rediss-cluster://"].iter().any(|it| url.starts_with(it));
    !is_cluster && !SentinelUrl::is_sentinel(url)
}

fn read_file(name: &str, path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path)
        .map_err(|e| format!("failed to read the file {} in {name}: {e}", path.display()))
}

fn describe(name: &str, path: &Path, problem: &str) -> String {
    format!("the file {} in {name}: {problem}", path.display())
}
