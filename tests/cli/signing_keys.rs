//! Tests the commands of signing keys, and that the keys depend on the master key.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use foundation::clock::Clock;

use super::*;
use crate::support::assertion::verify_assertion;

fn start(data: &Path) -> Command {
    let mut command = embedded(data);
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY).env("KEYWARD_PUBLIC_URL", "https://keys.example.com");
    command
}

/// A request of a gateway for a key, with a policy that signs.
fn gateway_request(server: &Server) -> String {
    let (_, created) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let api = created["data"]["apiId"].as_str().unwrap();
    let (_, issued) = server.v2(ROOT_KEY, "keys.createKey", &json!({ "apiId": api }));
    let policy = json!({ "name": "edge", "apiIds": [api], "identityHeaders": { "signed": true } });
    let (_, policy) = server.v2(ROOT_KEY, "gateways.createPolicy", &policy);
    format!(
        "GET /gateway/edge HTTP/1.1\r\nhost: a\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
        keyward-gateway-secret: {}\r\n\r\n",
        issued["data"]["key"].as_str().unwrap(),
        policy["data"]["secret"].as_str().unwrap()
    )
}

/// Asks for an assertion, and verifies it with these keys at the time of this machine.
fn verify(server: &Server, request: &str, jwks: &str) -> Result<(), String> {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let value = text.lines().find_map(|line| line.strip_prefix("keyward-assertion: "));
    let now = Clock::System.now();
    let verified =
        verify_assertion(value.unwrap().trim(), jwks, ("https://keys.example.com", "edge"), now);
    verified.map(drop)
}

fn jwks(server: &Server) -> String {
    get(server.address, "/.well-known/jwks.json").unwrap().1
}

fn states(data: &Path) -> Vec<(String, String)> {
    let listed = parse_json(&run(data, &["signing-key", "list", "--json"]));
    let text = |key: &Value, name: &str| key[name].as_str().unwrap().to_owned();
    let keys = listed.as_array().unwrap().iter();
    let mut states: Vec<_> =
        keys.map(|key| (text(key, "state"), text(key, "signingKeyId"))).collect();
    states.sort();
    states
}

#[test]
fn signing_key_is_rotated_while_server_runs() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(start(data.path()));
    assert!(states(data.path()).is_empty());
    let request = gateway_request(&server);
    let before = jwks(&server);
    verify(&server, &request, &before).unwrap();
    let old = states(data.path());
    assert_eq!(
        old.iter().map(|(state, _)| state.as_str()).collect::<Vec<_>>(),
        ["current", "next"]
    );

    // The next key was published together with the first one.
    let rotated = parse_json(&run(data.path(), &["signing-key", "rotate", "--json"]));

    assert_eq!(rotated, json!({ "signingKeyId": old[1].1, "retired": old[0].1 }));
    std::thread::sleep(Duration::from_secs(1));
    verify(&server, &request, &before).unwrap();
    verify(&server, &request, &jwks(&server)).unwrap();
    let new = states(data.path());
    assert_eq!(new[0], ("current".to_owned(), old[1].1.clone()));
    assert_eq!(new[2], ("retired".to_owned(), old[0].1.clone()));
    // Every verifier knows the keys of before and the next one. It does not know the one after that.
    let too_early = run(data.path(), &["signing-key", "rotate"]);
    assert_rejected(&too_early, 2, &["next signing key", "15 minutes", "seconds", "--force"]);
    parse_json(&run(data.path(), &["signing-key", "rotate", "--force", "--json"]));
    let waited = Stopwatch::new();
    while verify(&server, &request, &before).is_ok() {
        assert!(waited.elapsed() < Duration::from_secs(5), "the server has not seen the rotation");
        std::thread::sleep(Duration::from_millis(50));
    }
    verify(&server, &request, &jwks(&server)).unwrap();
}

#[test]
fn signing_keys_are_encrypted_with_the_new_master_key() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(start(data.path()));
    let request = gateway_request(&server);
    let before = jwks(&server);

    let rotated = parse_json(&run(data.path(), &["vault", "rotate", "--json"]));

    assert_eq!((&rotated["rotated"], &rotated["signingKeys"]), (&json!(0), &json!(2)));
    verify(&server, &request, &before).unwrap();
    drop(server);
    let server = Server::start(start(data.path()));
    verify(&server, &request, &before).unwrap();
    drop(server);
    let file = data.path().join("master.key");
    std::fs::rename(&file, data.path().join("elsewhere")).unwrap();
    let words = ["signing keys", "master.key", "KEYWARD_MASTER_KEY"];
    assert_rejected(&start(data.path()).output().unwrap(), 1, &words);
}

#[test]
fn signing_key_rotate_fails_without_master_key() {
    let database = tokio::runtime::Runtime::new().unwrap().block_on(Database::create());
    let mut command = keyward_command();
    command
        .env("KEYWARD_DATABASE_URL", &database.url)
        .env("KEYWARD_REDIS_URL", redis_url())
        .env("KEYWARD_REDIS_PREFIX", format!("t{}:", random_letters()));
    let output = command.args(["signing-key", "rotate"]).output().unwrap();

    assert_rejected(&output, 2, &["identityHeaders.signed", "KEYWARD_MASTER_KEY"]);
}
