//! What cannot be used is refused with one sentence: variables, files, databases, ports.

use std::collections::BTreeSet;

use keyward::config::Config;

use super::*;

#[test]
fn every_variable_is_documented_and_every_documented_one_is_known() {
    let document = include_str!("../../docs/operating.md");
    let section =
        document.split("\n## ").find(|section| section.starts_with("Settings\n")).unwrap();
    let names = section.split(|c: char| !c.is_ascii_uppercase() && c != '_');
    let documented: BTreeSet<_> = names.filter(|name| name.starts_with("KEYWARD_")).collect();

    let known = Config::variables();

    assert_eq!(known.iter().map(String::as_str).collect::<BTreeSet<_>>(), documented);
}

#[test]
fn a_secret_can_come_from_a_file() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("root-key");
    std::fs::write(&file, format!("{ROOT_KEY}\n")).unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY_FILE", &file);

    let server = Server::start(command);

    assert_eq!(server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" })).0, 200);
}

#[test]
fn one_url_without_the_other_is_refused() {
    let only = |name: &str, url: &str| keyward().env(name, url).output().unwrap();

    let words = ["KEYWARD_DATABASE_URL", "KEYWARD_REDIS_URL", "set both"];
    refused(&only("KEYWARD_DATABASE_URL", "postgres://localhost/x"), 2, &words);
    refused(&only("KEYWARD_REDIS_URL", "redis://localhost"), 2, &words);
}

#[test]
fn a_value_that_cannot_be_used_is_refused_with_its_name_and_what_is_allowed() {
    let long = "x".repeat(256);
    for (name, value, words) in [
        ("KEYWARD_LISTEN", "nowhere", &["\"nowhere\"", "127.0.0.1:3000"][..]),
        ("KEYWARD_ROOT_KEY", "only_19_characters_", &["19", "20 to 255"]),
        ("KEYWARD_ROOT_KEY", &long, &["256", "20 to 255"]),
        ("KEYWARD_ROOT_KEY", "with spaces in the middle", &["spaces"]),
        ("KEYWARD_DRAIN_SECONDS", "soon", &["\"soon\"", "0 to 3600"]),
        ("KEYWARD_DRAIN_SECONDS", "3601", &["0 to 3600"]),
        ("KEYWARD_PUBLIC_URL", "keys.example", &["https://"]),
        ("KEYWARD_DOCS_URL", "docs.example", &["https://"]),
        ("KEYWARD_LOG", "=,=", &["info"]),
        ("KEYWARD_LOG_FORMAT", "xml", &["text or json"]),
        ("KEYWARD_REDIS_TIMEOUT_MS", "0", &["1 to 10000"]),
        ("KEYWARD_DATABASE_CONNECTIONS", "1", &["2 to 1000"]),
        ("KEYWARD_CACHED_KEYS", "-5", &["whole number"]),
        ("KEYWARD_CLICKHOUSE_URL", "tcp://localhost:9000", &["http://", "https://"]),
        ("KEYWARD_CLICKHOUSE_URL", "http://", &["no address"]),
        ("KEYWARD_EVENTS_BYTES", "1048575", &["0 or at least 1048576"]),
        ("KEYWARD_EVENTS_BYTES", "10 GB", &["whole number"]),
        ("KEYWARD_EVENTS_RESERVE_BYTES", "-1", &["whole number"]),
        ("KEYWARD_DATABASE_ANALYTICS_URL", "mysql://x", &["postgres://"]),
        ("KEYWARD_DATABASE_ANALYTICS_URL", "postgres://x@y/z", &["KEYWARD_DATABASE_URL is not"]),
        ("KEYWARD_OIDC_ISSUER", "http://login.example.com", &["https://", "127.0.0.1"]),
        ("KEYWARD_OIDC_CLIENT_SECRET", "a_secret", &["KEYWARD_OIDC_ISSUER is not"]),
        ("KEYWARD_OIDC_ONLY", "yes", &["true or false"]),
        ("KEYWARD_OPEN_VERIFICATION", "maybe", &["\"maybe\"", "on, minimal or off"]),
        ("KEYWARD_UNKNOWN_KEYS_PER_MINUTE", "-1", &["whole number"]),
        ("KEYWARD_ROOT_KEY_FILE", "/does/not/exist", &["/does/not/exist"]),
    ] {
        let data = tempfile::tempdir().unwrap();
        let output = embedded(data.path()).env(name, value).output().unwrap();

        let mut words = words.to_vec();
        words.push(name);
        refused(&output, 2, &words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!told.contains("only_19_characters_") && !told.contains("a_secret"));
    }
}

#[test]
fn a_command_on_a_database_that_is_not_there_is_refused() {
    let url = format!("postgres://nobody@127.0.0.1:{}/none", free_port());
    let output = keyward()
        .arg("migrate")
        .env("KEYWARD_DATABASE_URL", url)
        .env("KEYWARD_REDIS_URL", redis_url())
        .output()
        .unwrap();

    refused(&output, 1, &["cannot reach the database", "KEYWARD_DATABASE_URL"]);
}

#[test]
fn a_schema_newer_than_the_binary_is_refused() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = runtime.block_on(async {
        let database = Database::create().await;
        let sql = "INSERT INTO _sqlx_migrations
            (version, description, success, checksum, execution_time)
            VALUES (9999, 'from the future', TRUE, '', 0)";
        sqlx::query(sql).execute(&mut database.connect().await).await.unwrap();
        database
    });

    let output = keyward()
        .env("KEYWARD_DATABASE_URL", &database.url)
        .env("KEYWARD_REDIS_URL", redis_url())
        .output()
        .unwrap();

    refused(&output, 1, &["9999", "newer than this keyward"]);
}

#[test]
fn a_port_in_use_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();

    let output = embedded(data.path()).env("KEYWARD_LISTEN", &address).output().unwrap();

    refused(&output, 1, &[&address, "KEYWARD_LISTEN"]);
}

#[test]
fn a_data_directory_that_cannot_be_used_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("a-file");
    std::fs::write(&file, "not a directory").unwrap();

    let output = embedded(&file).output().unwrap();

    refused(&output, 1, &["a-file", "KEYWARD_DATA_DIR"]);
}

#[test]
fn a_database_file_that_is_none_is_refused() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("keyward.db"), "this is no database, ".repeat(100)).unwrap();

    let output = embedded(data.path()).output().unwrap();

    refused(&output, 1, &["database", "KEYWARD_DATA_DIR"]);
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let _first = Server::start(embedded(data.path()));

    let output = embedded(data.path()).env("KEYWARD_LISTEN", "127.0.0.1:0").output().unwrap();

    refused(&output, 1, &["another keyward", "KEYWARD_DATA_DIR"]);
}
