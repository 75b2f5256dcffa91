//! The settings of TLS clients.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use crate::error::{Error, Result};

/// Returns the settings of a client that accepts certificates of the machine's roots and of those of the web. A
/// container image may contain no roots of its own.
///
/// # Errors
///
/// The cryptography supports no version of TLS.
pub fn client_config() -> Result<ClientConfig> {
    let mut roots: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    // Certificates of the machine that cannot be read or parsed are left out.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Internal(format!("failed to configure TLS: {e}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
