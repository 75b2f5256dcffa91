//! The settings of TLS clients, and in `server` those of the server itself.

pub mod server;

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
    WantsVerifier,
};

use crate::error::{Error, Result};

/// Makes this cryptography the one of libraries that do not let their caller choose. May be called more than once.
pub fn install_provider() {
    let _ = ring::default_provider().install_default();
}

/// Returns whether a connection to this host stays on this machine.
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

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
    Ok(builder()?.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the settings of a client of the server on this machine. It accepts only this certificate, or any one without
/// it, which is for clients that send no secret. Its names are not verified: they are those that other clients use.
///
/// # Errors
///
/// The cryptography supports no version of TLS.
pub fn local_client_config(certificate: Option<CertificateDer<'static>>) -> Result<ClientConfig> {
    let verifier = Arc::new(LocalVerifier { provider: ring::default_provider(), certificate });
    Ok(builder()?.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// Accepts one certificate, or any one, if the server has its key.
#[derive(Debug)]
struct LocalVerifier {
    provider: CryptoProvider,
    /// Absent: any certificate is accepted.
    certificate: Option<CertificateDer<'static>>,
}

impl ServerCertVerifier for LocalVerifier {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        match &self.certificate {
            Some(expected) if expected.as_ref() != presented.as_ref() => {
                let fault = "its certificate is not the one in the file in KEYWARD_TLS_CERT";
                Err(rustls::Error::General(fault.to_owned()))
            }
            Some(_) | None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Internal(format!("failed to configure TLS: {e}")))
}

/// Validates the certificates of authorities, in PEM. The error says what they must be.
pub fn validate_authority(pem: &[u8]) -> std::result::Result<(), String> {
    let mut roots = RootCertStore::empty();
    for certificate in parse_certificates(pem)? {
        roots.add(certificate).map_err(|e| format!("a certificate is invalid: {e}"))?;
    }
    Ok(())
}

/// Validates a certificate, followed by those of the authorities between it and the root, and its private key, in PEM.
/// The error says what they must be, and contains nothing of the key.
pub fn validate_certificate(certificate: &[u8], key: &[u8]) -> std::result::Result<(), String> {
    let chain = parse_certificates(certificate)?;
    let key = parse_private_key(key)?;
    let builder = builder().map_err(|e| e.to_string())?;
    builder
        .with_root_certificates(RootCertStore::empty())
        .with_client_auth_cert(chain, key)
        .map(drop)
        .map_err(|e| format!("the key does not belong to the certificate: {e}"))
}

fn parse_private_key(pem: &[u8]) -> std::result::Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| "the key must be a private key in PEM, without a passphrase".into())
}

fn parse_certificates(pem: &[u8]) -> std::result::Result<Vec<CertificateDer<'static>>, String> {
    match CertificateDer::pem_slice_iter(pem).collect::<std::result::Result<Vec<_>, _>>() {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err("it must contain a certificate in PEM".into()),
        Err(e) => Err(format!("it must contain certificates in PEM: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_the_name_and_its_addresses() {
        for host in ["localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example.com", "10.0.0.1", "0.0.0.0", "[fd00::1]", "db"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
