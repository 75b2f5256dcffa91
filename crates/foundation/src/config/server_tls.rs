//! Settings of TLS of the server's own listeners.

use std::path::PathBuf;

use clap::Args;

use crate::tls::server::{CERTIFICATE, CertificateFiles, PRIVATE_KEY};

/// The settings as written on the command line or in the environment.
#[derive(Args, Clone, Default)]
pub struct ServerTlsConfig {
    /// File with the certificate (PEM) of this server and those of the authorities between it and the root; all
    /// listeners then use TLS, and the file is read again when it changes
    #[arg(long, env = CERTIFICATE, global = true)]
    tls_cert: Option<PathBuf>,
    /// File with the private key (PEM) of that certificate
    #[arg(long, env = PRIVATE_KEY, global = true)]
    tls_key: Option<PathBuf>,
}

impl ServerTlsConfig {
    /// Returns whether the server uses TLS, for commands that call it.
    pub fn is_set(&self) -> bool {
        self.tls_cert.is_some() || self.tls_key.is_some()
    }

    /// Validates the files. Absent: the listeners do not use TLS.
    pub fn validate(&self) -> Result<Option<CertificateFiles>, String> {
        let (certificate, key) = match (&self.tls_cert, &self.tls_key) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
            (Some(_), None) => return Err(describe_missing(CERTIFICATE, PRIVATE_KEY)),
            (None, Some(_)) => return Err(describe_missing(PRIVATE_KEY, CERTIFICATE)),
        };
        let files = CertificateFiles { certificate, key };
        files.validate()?;
        Ok(Some(files))
    }
}

fn describe_missing(present: &str, missing: &str) -> String {
    format!("{present} must be used with {missing}: set both, or neither")
}
