//! Tests a server whose own listeners use TLS, with real clients.

mod expiry;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Stopwatch;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::faults::ROOT_KEY;
use crate::share_turn;
use crate::support::certificates::{Authority, Certificate};
use crate::support::process::{Server, free_port, keyward_command};

/// A server with TLS, and what its clients need.
struct Site {
    directory: tempfile::TempDir,
    authority: Authority,
    server: Server,
}

impl Site {
    fn start(variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create(directory.path().join("ca.pem"));
        let issued = authority.issue("127.0.0.1", directory.path(), "server");
        let server = launch(&directory, &issued, variables);
        Self { directory, authority, server }
    }

    fn curl(&self, arguments: &[&str], path: &str) -> CurlReply {
        curl(self.server.address, &self.authority.file, arguments, path)
    }

    fn post(&self, protocol: &str, operation: &str, body: &Value) -> Value {
        let authorization = format!("Authorization: Bearer {ROOT_KEY}");
        let arguments = [
            protocol,
            "--header",
            &authorization,
            "--header",
            "Content-Type: application/json",
            "--data",
            &body.to_string(),
        ];
        let reply = self.curl(&arguments, &format!("/v2/{operation}"));
        assert_eq!(reply.status, "200", "{operation}: {}", reply.body);
        let reply: Value = serde_json::from_str(&reply.body).unwrap();
        reply["data"].clone()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }
}

/// Starts a server with these files, and waits until it is ready.
fn launch(
    directory: &tempfile::TempDir,
    files: &Certificate,
    variables: &[(&str, &str)],
) -> Server {
    let command = || {
        let mut command = keyward_command();
        command.env("KEYWARD_DATA_DIR", directory.path().join("data"));
        command.env("KEYWARD_ROOT_KEY", ROOT_KEY).env("KEYWARD_DRAIN_SECONDS", "0");
        command.env("KEYWARD_TLS_CERT", &files.certificate);
        command.env("KEYWARD_TLS_KEY", &files.key).envs(variables.iter().copied());
        command
    };
    let log = std::fs::File::create(directory.path().join("log")).unwrap();
    let server = Server::launch(command(), Stdio::from(log));
    let address = server.address.to_string();
    wait_until("the server is ready", || {
        let health = command().arg("health").env("KEYWARD_LISTEN", &address).output().unwrap();
        health.status.success()
    });
    server
}

#[track_caller]
fn wait_until(what: &str, mut is_reached: impl FnMut() -> bool) {
    let since = Stopwatch::new();
    while !is_reached() {
        assert!(since.elapsed() < Duration::from_secs(20), "not reached: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What curl received.
struct CurlReply {
    /// 000: nothing.
    status: String,
    /// The version of HTTP.
    version: String,
    headers: String,
    body: String,
}

/// Calls a server with curl, which trusts this authority.
fn curl(address: SocketAddr, authority: &Path, arguments: &[&str], path: &str) -> CurlReply {
    let output = Command::new("curl")
        .env_clear()
        .args(["--silent", "--include", "--max-time", "20", "--cacert"])
        .arg(authority)
        .args(["--write-out", "\n%{http_code} %{http_version}"])
        .args(arguments)
        .arg(format!("https://{address}{path}"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (reply, end) = text.rsplit_once('\n').unwrap();
    let (status, version) = end.split_once(' ').unwrap();
    let (headers, body) = reply.split_once("\r\n\r\n").unwrap_or_default();
    CurlReply {
        status: status.to_owned(),
        version: version.to_owned(),
        headers: headers.to_lowercase(),
        body: body.to_owned(),
    }
}

/// A connection with TLS that stays open.
struct Connection(StreamOwned<ClientConnection, TcpStream>);

impl Connection {
    fn open(address: SocketAddr, authority: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::from(address.ip());
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(StreamOwned::new(client, stream))
    }

    /// Returns the status line of the response.
    fn get(&mut self, path: &str) -> String {
        self.try_get(path).expect("an answer")
    }

    fn try_get(&mut self, path: &str) -> std::io::Result<String> {
        self.0.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"ok\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            answer.extend(byte);
        }
        Ok(String::from_utf8_lossy(&answer).lines().next().unwrap().to_owned())
    }
}

#[test]
fn server_answers_http1_and_http2_on_both_listeners_with_tls() {
    let _turn = share_turn();
    let metrics: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let site = Site::start(&[("KEYWARD_METRICS_LISTEN", &metrics.to_string())]);
    let address = site.server.address;
    assert!(
        site.server.banner.contains(&format!("listens on https://{address} ")),
        "{}",
        site.server.banner
    );

    for (protocol, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let api = site.post(protocol, "apis.createApi", &json!({ "name": "payments" }));
        let fields = json!({ "apiId": api["apiId"], "credits": { "remaining": 2 } });
        let key = site.post(protocol, "keys.createKey", &fields);
        let codes = [(); 3].map(|()| {
            let verified = site.post(protocol, "keys.verifyKey", &json!({ "key": key["key"] }));
            verified["code"].as_str().unwrap().to_owned()
        });
        assert_eq!(codes, ["VALID", "VALID", "USAGE_EXCEEDED"], "HTTP/{version}");

        let document = site.curl(&[protocol], "/openapi.json");
        assert_eq!((document.status.as_str(), document.version.as_str()), ("200", version));
        assert!(document.headers.contains("strict-transport-security: max-age=31536000"));
        assert!(document.body.contains(&format!("https://{address}")), "its URLs are https");
        let samples = curl(metrics, &site.authority.file, &[protocol], "/metrics");
        assert_eq!((samples.status.as_str(), samples.version.as_str()), ("200", version));
        assert!(samples.body.contains("keyward_connections "), "{}", samples.body);
    }
    assert_eq!(site.curl(&["--tls-max", "1.2"], "/livez").status, "200");
    assert_eq!(site.curl(&["--tls-max", "1.1"], "/livez").status, "000");
}

#[test]
fn dashboard_accepts_forms_over_http1_and_http2() {
    let _turn = share_turn();
    // Browsers name this host in the form's origin, and the public URL is another one.
    let site = Site::start(&[("KEYWARD_PUBLIC_URL", "https://keys.example.com")]);
    let origin = format!("Origin: https://{}", site.server.address);
    let jar = site.directory.path().join("cookies").display().to_string();

    for (protocol, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let page = site.curl(&[protocol, "--cookie-jar", &jar], "/dashboard/login");
        assert!(page.headers.contains("secure"), "{}", page.headers);
        let (_, rest) = page.body.split_once("name=\"csrf\" value=\"").unwrap();
        let csrf = format!("csrf={}", rest.split('"').next().unwrap());
        let send = |origin: &str| {
            let arguments = [
                protocol,
                "--cookie",
                &jar,
                "--header",
                origin,
                "--data",
                &csrf,
                "--data",
                "email=ada@example.com&password=not_the_right_one",
            ];
            site.curl(&arguments, "/dashboard/login")
        };

        let own = send(&origin);
        assert_eq!(own.version, version);
        assert!(own.body.contains("Incorrect e-mail"), "the form was read: {}", own.body);
        assert_eq!(send("Origin: https://other.example.com").status, "403");
    }
}

#[test]
fn new_connections_use_the_certificate_that_replaced_the_files() {
    let _turn = share_turn();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let authorities =
        ["first", "second"].map(|name| Authority::create(path(&format!("{name}_ca.pem"))));
    let [first, second] = &authorities;
    let old = first.issue("127.0.0.1", directory.path(), "old");
    let new = second.issue("127.0.0.1", directory.path(), "new");
    // As certbot and cert-manager do, the configured paths are links to what is current.
    let link = |target: &Path, link: &str| {
        let temporary = path("temporary");
        symlink(target, &temporary).unwrap();
        std::fs::rename(&temporary, path(link)).unwrap();
    };
    link(&old.certificate, "cert.pem");
    link(&old.key, "key.pem");
    let links = Certificate { certificate: path("cert.pem"), key: path("key.pem") };
    let server = launch(&directory, &links, &[]);
    let log = || std::fs::read_to_string(path("log")).unwrap();
    let status =
        |authority: &Authority| curl(server.address, &authority.file, &[], "/livez").status;
    let mut open = Connection::open(server.address, &first.file);
    assert_eq!(open.get("/livez"), "HTTP/1.1 200 OK");
    assert_eq!((status(first), status(second)), ("200".into(), "000".into()));

    link(&new.certificate, "cert.pem");
    let fault = "failed to replace the certificate, and kept the previous one";
    wait_until("half of the pair is reported", || log().contains(fault));
    assert_eq!(status(first), "200", "the previous certificate is kept");
    link(&new.key, "key.pem");
    wait_until("the new certificate is used", || status(second) == "200");
    assert_eq!(status(first), "000");
    assert_eq!(open.get("/livez"), "HTTP/1.1 200 OK", "the open connection is kept");

    std::fs::write(&new.key, "nothing").unwrap();
    let no_key = "key.pem in KEYWARD_TLS_KEY: the key must be a private key in PEM";
    wait_until("the fault is logged", || log().contains(no_key));
    // Longer than two more reads.
    std::thread::sleep(Duration::from_secs(5));
    let reports = log().lines().filter(|line| line.contains(no_key)).count();
    assert_eq!(reports, 1, "{}", log());
    assert_eq!(status(second), "200");
    std::fs::remove_file(&new.certificate).unwrap();
    let absent = "cert.pem in KEYWARD_TLS_CERT: No such file";
    wait_until("the other fault is logged", || log().contains(absent));
    assert_eq!(status(second), "200");
}

/// Connects and sends nothing. Returns after how long the server closed the connection.
fn send_nothing(address: SocketAddr) -> std::thread::JoinHandle<Duration> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    std::thread::spawn(move || {
        let began = Stopwatch::new();
        let _ = stream.read_to_end(&mut Vec::new()).expect("the server closes the connection");
        began.elapsed()
    })
}

fn open_connections(site: &Site) -> u64 {
    let metrics = site.curl(&[], "/metrics").body;
    let mut values = metrics.lines().filter_map(|line| line.strip_prefix("keyward_connections "));
    values.next().and_then(|value| value.parse().ok()).expect("the metric")
}

#[test]
fn connection_is_counted_during_its_handshake_and_closed_after_10_s() {
    let _turn = share_turn();
    let site = Site::start(&[]);

    let silent: Vec<_> = (0..20).map(|_| send_nothing(site.server.address)).collect();
    wait_until("they are counted", || open_connections(&site) == 21);
    for silent in silent {
        let took = silent.join().unwrap();
        assert!((9..14).contains(&took.as_secs()), "{took:?}");
    }
    wait_until("they are counted no longer", || open_connections(&site) == 1);
}

#[test]
fn stopping_server_closes_connections_during_their_handshakes() {
    let _turn = share_turn();
    let site = Site::start(&[]);
    let silent: Vec<_> = (0..20).map(|_| send_nothing(site.server.address)).collect();
    wait_until("they are counted", || open_connections(&site) == 21);
    let mut open = Connection::open(site.server.address, &site.authority.file);
    assert_eq!(open.get("/livez"), "HTTP/1.1 200 OK");

    let began = Stopwatch::new();
    site.server.signal("TERM");
    for silent in silent {
        silent.join().unwrap();
    }
    assert!(matches!(open.0.read(&mut [0]), Ok(0)), "the open connection is closed properly");
    assert_eq!(site.server.wait(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn draining_server_answers_over_http2_until_it_stops() {
    let _turn = share_turn();
    let site = Site::start(&[("KEYWARD_DRAIN_SECONDS", "3")]);

    site.server.signal("TERM");
    wait_until("it is draining", || site.curl(&["--http2"], "/readyz").status == "503");
    let reply = site.curl(&["--http2"], "/livez");

    assert_eq!((reply.status.as_str(), reply.version.as_str()), ("200", "2"));
    assert_eq!(site.server.wait(), Some(0));
}

#[test]
fn connection_beyond_the_maximum_is_closed_without_a_response() {
    let _turn = share_turn();
    let site = Site::start(&[("KEYWARD_CONNECTIONS_MAX", "2")]);
    wait_until("the health check of the start has left", || {
        site.curl(&[], "/metrics").body.contains("keyward_connections 1\n")
    });
    // The connection of the last request may still count.
    let connect = || {
        let mut admitted = None;
        wait_until("a connection is admitted", || {
            let mut connection = Connection::open(site.server.address, &site.authority.file);
            let status = connection.try_get("/livez").unwrap_or_default();
            admitted = (status == "HTTP/1.1 200 OK").then_some(connection);
            admitted.is_some()
        });
        admitted.unwrap()
    };
    let (first, mut second) = (connect(), connect());

    assert_eq!(site.curl(&[], "/livez").status, "000");
    drop(first);
    wait_until("one may connect again", || site.curl(&[], "/livez").status == "200");
    assert_eq!(second.get("/livez"), "HTTP/1.1 200 OK");
    // The connection of the last request may still count.
    wait_until("the metrics tell of the refused connection", || {
        let metrics = site.curl(&[], "/metrics").body;
        let name = "keyward_connections_refused_total ";
        let count = metrics.lines().find_map(|line| line.strip_prefix(name));
        count.is_some_and(|count| count != "0")
    });
}

#[test]
fn client_without_tls_gets_no_response() {
    let _turn = share_turn();
    let site = Site::start(&[]);
    let mut stream = TcpStream::connect(site.server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();

    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);

    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert_eq!(site.curl(&[], "/livez").status, "200");
    assert!(!site.log().contains("ERROR"), "{}", site.log());
}
