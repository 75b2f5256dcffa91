//! The certificate of the server's own listeners, which is read again when its files change.
//!
//! Certificates are renewed while the server runs, by tools that replace files or symbolic links, one after the other.
//! So the contents are compared: neither modification times nor the files that a path leads to can be relied upon.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::{parse_certificates, parse_private_key};
use crate::clock::Timestamp;

/// The variable that names the file with the certificate.
pub const CERTIFICATE: &str = "KEYWARD_TLS_CERT";
/// The variable that names the file with the private key.
pub const PRIVATE_KEY: &str = "KEYWARD_TLS_KEY";
/// The maximum size of each file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The protocols that a client may choose, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];
/// The name of HTTP/2 in the handshake.
pub const HTTP2: &[u8] = b"h2";

/// The files of a certificate, which authorities between it and the root follow, and its private key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The times between which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub begins_at: Timestamp,
    pub ends_at: Timestamp,
}

impl Validity {
    /// Says what is wrong with the certificate at a time: it has expired, or is not valid yet.
    pub fn find_fault(&self, now: Timestamp) -> Option<String> {
        let time = |at: Timestamp| jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
        if now > self.ends_at {
            return Some(format!("it expired at {}", time(self.ends_at)));
        }
        (now < self.begins_at).then(|| format!("it is not valid before {}", time(self.begins_at)))
    }
}

/// What the two files contain.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The current certificate of the listeners. New connections use it.
pub struct ServerCertificate {
    config: ArcSwap<ServerConfig>,
}

/// Reads the files of a [`ServerCertificate`] again. Only one exists for each.
pub struct CertificateReader {
    files: CertificateFiles,
    /// What was read last: the contents, or why they could not be read.
    seen: Result<Contents, String>,
    target: Arc<ServerCertificate>,
}

impl ServerCertificate {
    /// Loads the files at the start. The error names the variable, the file and the fault.
    pub fn load(
        files: CertificateFiles,
    ) -> Result<(Arc<Self>, CertificateReader, Validity), String> {
        let contents = files.read()?;
        let (config, validity) = files.parse(&contents)?;
        let certificate = Arc::new(Self { config: ArcSwap::from_pointee(config) });
        let reader = CertificateReader { files, seen: Ok(contents), target: certificate.clone() };
        Ok((certificate, reader, validity))
    }

    /// Returns the settings of the next connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }
}

impl CertificateReader {
    /// Reads the files, and replaces the certificate if they have changed and are valid. Returns nothing if they are as
    /// at the last call, so each fault is reported once.
    pub fn read_again(&mut self) -> Option<Result<Validity, String>> {
        let found = self.files.read();
        if found == self.seen {
            return None;
        }
        self.seen = found;
        let contents = match &self.seen {
            Ok(contents) => contents,
            Err(fault) => return Some(Err(fault.clone())),
        };
        Some(self.files.parse(contents).map(|(config, validity)| {
            self.target.config.store(Arc::new(config));
            validity
        }))
    }

    pub fn files(&self) -> &CertificateFiles {
        &self.files
    }
}

impl CertificateFiles {
    /// Validates the files. The error names the variable, the file and the fault.
    pub fn validate(&self) -> Result<Validity, String> {
        self.parse(&self.read()?).map(|(_, validity)| validity)
    }

    /// Reads the certificate of the server itself, which is the first one of its file.
    ///
    /// # Errors
    ///
    /// Names the variable, the file and the fault.
    pub fn read_certificate(&self) -> Result<CertificateDer<'static>, String> {
        let chain = parse_certificates(&read_file(CERTIFICATE, &self.certificate)?);
        let first = chain.map(|chain| chain.into_iter().next());
        let fault = match first {
            Ok(Some(certificate)) => return Ok(certificate),
            Ok(None) => "it contains no certificate".to_owned(),
            Err(fault) => fault,
        };
        Err(format!("the file {} in {CERTIFICATE}: {fault}", self.certificate.display()))
    }

    fn read(&self) -> Result<Contents, String> {
        Ok(Contents {
            certificate: read_file(CERTIFICATE, &self.certificate)?,
            key: read_file(PRIVATE_KEY, &self.key)?,
        })
    }

    fn parse(&self, contents: &Contents) -> Result<(ServerConfig, Validity), String> {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let chain = parse_certificates(&contents.certificate)
            .map_err(|fault| format!("the file {certificate} in {CERTIFICATE}: {fault}"))?;
        let private_key = parse_private_key(&contents.key)
            .map_err(|fault| format!("the file {key} in {PRIVATE_KEY}: {fault}"))?;
        let validity = read_validity(&chain)
            .map_err(|fault| format!("the file {certificate} in {CERTIFICATE}: {fault}"))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("failed to configure TLS: {e}"))?;
        let mut config =
            builder.with_no_client_auth().with_single_cert(chain, private_key).map_err(|e| {
                let fault = match e {
                    rustls::Error::InconsistentKeys(_) => {
                        "the key does not belong to the certificate".to_owned()
                    }
                    e => e.to_string(),
                };
                format!("{certificate} and {key} in {CERTIFICATE} and {PRIVATE_KEY}: {fault}")
            })?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        Ok((config, validity))
    }
}

fn read_file(variable: &str, path: &Path) -> Result<Vec<u8>, String> {
    let failed = |e| format!("failed to read the file {} in {variable}: {e}", path.display());
    let mut content = Vec::new();
    let mut file = File::open(path).map_err(failed)?.take(FILE_BYTES_MAX + 1);
    file.read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "the file {} in {variable}: it must have at most {FILE_BYTES_MAX} bytes",
            path.display()
        ));
    }
    Ok(content)
}

/// Returns the validity of the first certificate, which is the server's own.
fn read_validity(chain: &[CertificateDer<'_>]) -> Result<Validity, String> {
    let first = chain.first().map(AsRef::as_ref).unwrap_or_default();
    let certificate = Certificate::from_der(first)
        .map_err(|e| format!("it must contain a certificate of version 3 of X.509: {e}"))?;
    let validity = certificate.tbs_certificate().validity();
    let time = |time: x509_cert::time::Time| {
        Timestamp(i64::try_from(time.to_unix_duration().as_millis()).unwrap_or(i64::MAX))
    };
    Ok(Validity { begins_at: time(validity.not_before), ends_at: time(validity.not_after) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_is_valid_from_its_first_to_its_last_moment() {
        let validity = Validity { begins_at: Timestamp(1_000), ends_at: Timestamp(2_000) };
        let fault = |now| validity.find_fault(Timestamp(now));

        assert_eq!((fault(1_000), fault(2_000)), (None, None));
        assert_eq!(fault(999).as_deref(), Some("it is not valid before 1970-01-01T00:00:01Z"));
        assert_eq!(fault(2_001).as_deref(), Some("it expired at 1970-01-01T00:00:02Z"));
    }

    #[test]
    fn file_is_read_up_to_1_mib() {
        let path = std::env::temp_dir().join(format!("keyward-tls-{}", std::process::id()));
        let size = usize::try_from(FILE_BYTES_MAX).expect("a size");
        let read = |bytes: usize| {
            std::fs::write(&path, vec![b'a'; bytes]).expect("a file");
            read_file("KEYWARD_X", &path).map(|content| content.len())
        };

        assert_eq!(read(size), Ok(size));
        let error = read(size + 1).expect_err("too large");
        std::fs::remove_file(&path).expect("the file");

        assert!(error.ends_with("in KEYWARD_X: it must have at most 1048576 bytes"), "{error}");
    }
}
