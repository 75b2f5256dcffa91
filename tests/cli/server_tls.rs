//! Tests the certificate of the server's own listeners at the start, and commands that call a server with TLS.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use foundation::tls::server::{CertificateFiles, ServerCertificate};
use rustls::{ServerConnection, StreamOwned};

use super::settings::{OTHERS, validate};
use super::*;
use crate::support::certificates::{Authority, Certificate};

/// The certificates of a server, and others, in a directory.
struct Files {
    directory: tempfile::TempDir,
    authority: Authority,
}

impl Files {
    fn create() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create(directory.path().join("ca.pem"));
        Self { directory, authority }
    }

    fn issue(&self, name: &str) -> Certificate {
        self.authority.issue("127.0.0.1", self.directory.path(), name)
    }

    /// Writes a file. Returns its path.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }
}

/// Returns the error of these settings. Empty: they are valid.
fn error(settings: &[(&str, &str)]) -> String {
    let all: Vec<_> = OTHERS.into_iter().chain(settings.iter().copied()).collect();
    validate(&all).err().unwrap_or_default()
}

fn command_with(certificate: &Certificate) -> Command {
    let mut command = keyward_command();
    command.env("KEYWARD_TLS_CERT", &certificate.certificate);
    command.env("KEYWARD_TLS_KEY", &certificate.key);
    command
}

/// Listens with a certificate, and answers every request with 200. Returns the address and what is received.
fn impersonate(certificate: &Certificate) -> (SocketAddr, Arc<Mutex<String>>) {
    let Certificate { certificate, key } = certificate;
    let files = CertificateFiles { certificate: certificate.clone(), key: key.clone() };
    let (certificate, _, _) = ServerCertificate::load(files).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let received = Arc::new(Mutex::new(String::new()));
    let record = received.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(certificate.config()).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            let mut request = [0; 4096];
            // A client that rejects the certificate sends nothing.
            let Ok(read) = stream.read(&mut request) else { continue };
            record.lock().unwrap().push_str(&String::from_utf8_lossy(&request[..read]));
            let reply = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
            let _ = stream.write_all(reply).and_then(|()| stream.flush());
        }
    });
    (address, received)
}

#[test]
fn certificate_of_server_is_validated_at_the_start() {
    let files = Files::create();
    let [first, second] = ["first", "second"].map(|name| files.issue(name));
    let [certificate, key] = [&first.certificate, &first.key].map(|p| p.display().to_string());
    let other_key = second.key.display().to_string();
    let no_pem = files.write("no.pem", "a certificate");
    let no_x509 =
        files.write("x.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let too_large = files.write("large.pem", vec![b'a'; 1024 * 1024 + 1]);
    let absent = files.directory.path().join("absent.pem").display().to_string();
    let error =
        |certificate: &str, key: &str| error(&[("tls-cert", certificate), ("tls-key", key)]);
    let in_file =
        |path: &str, variable: &str, fault: &str| format!("the file {path} in {variable}: {fault}");

    assert_eq!(error(&certificate, &key), "");
    let mismatch = error(&certificate, &other_key);
    assert!(
        mismatch.starts_with(&format!(
            "{certificate} and {other_key} in KEYWARD_TLS_CERT and KEYWARD_TLS_KEY: the key does not belong to the \
            certificate"
        )),
        "{mismatch}"
    );
    assert_eq!(
        error(&no_pem, &key),
        in_file(&no_pem, "KEYWARD_TLS_CERT", "it must contain a certificate in PEM")
    );
    let invalid = error(&no_x509, &key);
    assert!(
        invalid.starts_with(&in_file(&no_x509, "KEYWARD_TLS_CERT", "it must contain")),
        "{invalid}"
    );
    assert_eq!(
        error(&certificate, &certificate),
        in_file(
            &certificate,
            "KEYWARD_TLS_KEY",
            "the key must be a private key in PEM, without a passphrase"
        )
    );
    assert_eq!(
        error(&certificate, &too_large),
        in_file(&too_large, "KEYWARD_TLS_KEY", "it must have at most 1048576 bytes")
    );
    for (error, variable) in [
        (error(&absent, &key), "KEYWARD_TLS_CERT"),
        (error(&certificate, &absent), "KEYWARD_TLS_KEY"),
    ] {
        let expected = format!("failed to read the file {absent} in {variable}: No such file");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn certificate_and_key_of_server_are_set_together() {
    let files = Files::create();
    let Certificate { certificate, key } = files.issue("server");
    let [certificate, key] = [certificate, key].map(|path| path.display().to_string());

    assert_eq!(
        error(&[("tls-cert", &certificate)]),
        "KEYWARD_TLS_CERT must be used with KEYWARD_TLS_KEY: set both, or neither"
    );
    assert_eq!(
        error(&[("tls-key", &key)]),
        "KEYWARD_TLS_KEY must be used with KEYWARD_TLS_CERT: set both, or neither"
    );
}

#[test]
fn default_urls_are_https_with_a_certificate() {
    let files = Files::create();
    let Certificate { certificate, key } = files.issue("server");
    let [certificate, key] = [certificate, key].map(|path| path.display().to_string());
    let tls = [("tls-cert", certificate.as_str()), ("tls-key", key.as_str())];
    let settings = |listen| {
        let all: Vec<_> = OTHERS.into_iter().chain(tls).chain([("listen", listen)]).collect();
        validate(&all).unwrap()
    };

    let local = settings("127.0.0.1:3000");
    assert_eq!(
        (local.public_url.as_str(), local.docs_url.as_str()),
        ("https://127.0.0.1:3000", "https://127.0.0.1:3000")
    );
    assert_eq!(settings("0.0.0.0:3000").public_url, "https://127.0.0.1:3000");
    let bound = settings("127.0.0.1:0").with_listen_address(([127, 0, 0, 1], 4000).into());
    assert_eq!(bound.public_url, "https://127.0.0.1:4000");
}

#[test]
fn server_does_not_start_when_its_key_does_not_belong_to_its_certificate() {
    let files = Files::create();
    let [first, second] = ["first", "second"].map(|name| files.issue(name));
    let data = tempfile::tempdir().unwrap();
    let mixed = Certificate { certificate: first.certificate, key: second.key };

    let output = command_with(&mixed).env("KEYWARD_DATA_DIR", data.path()).output().unwrap();

    let key = mixed.key.display().to_string();
    assert_rejected(&output, 2, &["KEYWARD_TLS_CERT", "KEYWARD_TLS_KEY", &key, "does not belong"]);
}

#[test]
fn server_starts_and_warns_when_its_certificate_has_expired() {
    let files = Files::create();
    let expired = files.authority.issue_until("127.0.0.1", files.directory.path(), "server", 2020);
    let data = tempfile::tempdir().unwrap();
    let log = files.directory.path().join("log");
    let command = || {
        let mut command = command_with(&expired);
        command.env("KEYWARD_DATA_DIR", data.path()).env("KEYWARD_DRAIN_SECONDS", "0");
        command
    };

    let log_file = std::fs::File::create(&log).unwrap();
    let server = Server::launch(command(), Stdio::from(log_file));
    let address = server.address.to_string();
    let health = command().arg("health").env("KEYWARD_LISTEN", &address).output().unwrap();
    let report =
        command().args(["doctor", "--json"]).env("KEYWARD_LISTEN", &address).output().unwrap();

    assert!(health.status.success(), "{health:?}");
    let log = std::fs::read_to_string(&log).unwrap();
    let certificate = expired.certificate.display();
    let warning = format!(
        "clients will reject the certificate in {certificate}: it expired at 2020-01-01T00:00:00Z"
    );
    assert!(log.contains(&warning), "{log}");
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let finding = |check: &str| {
        report.as_array().unwrap().iter().find(|finding| finding["check"] == check).unwrap().clone()
    };
    assert_eq!(finding("certificate")["state"], "warning");
    assert_eq!(
        finding("certificate")["found"],
        format!("{certificate}: it expired at 2020-01-01T00:00:00Z")
    );
    assert_eq!(finding("server")["state"], "ok", "the server is called with TLS");
}

#[test]
fn root_key_is_sent_only_to_the_server_with_the_certificate() {
    let files = Files::create();
    let [own, other] = ["own", "other"].map(|name| files.issue(name));
    let (address, received) = impersonate(&own);
    let data = tempfile::tempdir().unwrap();
    let verify = |expected: &Certificate| {
        let mut command = command_with(expected);
        command.env("KEYWARD_DATA_DIR", data.path()).env("KEYWARD_ROOT_KEY", ROOT_KEY);
        command.env("KEYWARD_LISTEN", address.to_string()).args(["key", "verify", "a_key"]);
        command.output().unwrap()
    };

    let rejected = verify(&other);
    let received_from_rejected = received.lock().unwrap().clone();
    verify(&own);

    assert_rejected(&rejected, 1, &["did not answer", "certificate", "KEYWARD_TLS_CERT"]);
    assert!(received_from_rejected.starts_with("GET /livez"), "{received_from_rejected}");
    assert!(!received_from_rejected.contains(ROOT_KEY), "{received_from_rejected}");
    let received = received.lock().unwrap();
    assert!(received.contains(&format!("Bearer {ROOT_KEY}")), "{received}");
}
