//! Tests the links to the dashboard that the server and the command line print.

use super::*;

/// Returns the link in a text.
fn link(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    words.find(|word| word.contains("/dashboard/join/")).map(str::to_owned)
}

fn path(link: &str) -> &str {
    link.split_once("//").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..])).unwrap()
}

#[test]
fn start_prints_setup_link_until_a_user_exists() {
    let data = tempfile::tempdir().unwrap();

    let first = Server::start(embedded(data.path()));
    let one = link(&first.banner).unwrap_or_else(|| panic!("no link: {}", first.banner));
    drop(first);
    let second = Server::start(embedded(data.path()));
    let other = link(&second.banner).unwrap();

    assert!(other.starts_with(&format!("http://{}/dashboard/join/", second.address)));
    assert_ne!(one, other);
    for link in [&one, &other] {
        let (status, page) = get(second.address, path(link)).unwrap();
        assert_eq!(status, 200);
        assert!(page.contains("Set up the dashboard"), "{page}");
    }
}

#[test]
fn setup_link_is_created_while_server_runs_if_workspace_exists() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(embedded(data.path()));
    let cli = |arguments: &[&str]| {
        let mut command = embedded(data.path());
        command.env("KEYWARD_PUBLIC_URL", "https://keys.example/");
        command.args(["dashboard", "setup-link", "--json"]).args(arguments).output().unwrap()
    };

    let created = parse_json(&cli(&[]));

    let url = created["url"].as_str().unwrap();
    assert!(url.starts_with("https://keys.example/dashboard/join/"), "{url}");
    let (status, page) = get(server.address, path(url)).unwrap();
    assert!(status == 200 && page.contains("Set up the dashboard"), "{page}");
    assert_rejected(&cli(&["--workspace", "ws_none"]), 2, &["ws_none", "does not exist"]);
}
