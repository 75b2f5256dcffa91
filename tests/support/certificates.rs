//! Certificates of a private authority, in files.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

/// An authority that signs certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// Its own certificate.
    pub file: PathBuf,
}

/// A certificate and its private key.
pub struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    /// Creates an authority, and writes its certificate.
    pub fn create(file: PathBuf) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        std::fs::write(&file, issuer.pem()).expect("a file");
        Self { issuer, file }
    }

    /// Writes a certificate for a host, and its private key, to files with this name in the directory.
    pub fn issue(&self, host: &str, directory: &Path, name: &str) -> Certificate {
        let key = KeyPair::generate().expect("a key");
        let files = Certificate::files(directory, name);
        std::fs::write(&files.certificate, self.sign(host, &key)).expect("a file");
        std::fs::write(&files.key, key.serialize_pem()).expect("a file");
        files
    }

    /// Like [`Authority::issue`], with a certificate that is valid until the beginning of a year.
    pub fn issue_until(&self, host: &str, directory: &Path, name: &str, year: i32) -> Certificate {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a host");
        params.not_after = date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = Certificate::files(directory, name);
        std::fs::write(&files.certificate, certificate.pem()).expect("a file");
        std::fs::write(&files.key, key.serialize_pem()).expect("a file");
        files
    }

    /// Returns a certificate of this key for a host, in PEM.
    pub fn sign(&self, host: &str, key: &KeyPair) -> String {
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a host");
        params.distinguished_name.push(DnType::CommonName, host);
        params.signed_by(key, &self.issuer).expect("a certificate").pem()
    }
}

impl Certificate {
    fn files(directory: &Path, name: &str) -> Self {
        Self {
            certificate: directory.join(format!("{name}_cert.pem")),
            key: directory.join(format!("{name}_key.pem")),
        }
    }
}
