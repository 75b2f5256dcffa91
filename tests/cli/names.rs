//! Tests names with control characters for terminals: new ones are rejected, and existing ones are escaped.

use super::*;

const HOSTILE: &str = "evil\u{1b}[2J\u{202e}name";
const ESCAPED_NAME: &str = "evil\\u{1b}[2J\\u{202e}name";

#[test]
fn commands_reject_new_names_with_hidden_characters_and_store_others() {
    let data = tempfile::tempdir().unwrap();
    let commands: [&[&str]; 4] = [
        &["api", "create", "--name"],
        &["root-key", "create", "--all", "--name"],
        &["workspace", "create", "--name"],
        &["migration", "create", "--algorithm", "sha256", "--name"],
    ];

    for command in commands {
        let output = run(data.path(), &[command, &[HOSTILE]].concat());
        assert_rejected(&output, 2, &["name must not contain control characters"]);
        let output = run(data.path(), &[command, &["Größe 請求書"]].concat());
        assert!(output.status.success(), "{output:?}");
    }
}

/// Renames everything that commands list to a name that was stored before such names were rejected.
fn rename_everything(data_dir: &Path) {
    let url = format!("sqlite://{}", data_dir.join("keyward.db").display());
    let targets = json!([{ "type": "key", "id": HOSTILE, "name": HOSTILE }]).to_string();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        for (statement, value) in [
            ("UPDATE root_keys SET name = ?", HOSTILE),
            ("UPDATE apis SET name = ?", HOSTILE),
            ("UPDATE namespaces SET name = ?", HOSTILE),
            ("UPDATE migrations SET name = ?", HOSTILE),
            ("UPDATE audit SET actor_name = ?", HOSTILE),
            ("UPDATE audit SET targets = ?", targets.as_str()),
        ] {
            let renamed = sqlx::query(statement).bind(value).execute(&mut connection).await;
            assert!(renamed.unwrap().rows_affected() > 0, "{statement}");
        }
    });
}

#[test]
fn lists_escape_hidden_characters_of_existing_names() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    assert_eq!(server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" })).0, 200);
    let check = json!({ "namespace": "n", "identifier": "i", "limit": 5, "duration": 60_000 });
    assert_eq!(server.v2(ROOT_KEY, "ratelimit.limit", &check).0, 200);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let create = ["migration", "create", "--algorithm", "sha256", "--name", "old"];
    assert!(run(data.path(), &create).status.success());
    rename_everything(data.path());

    // How many lines of each list contain the name: an entry of the audit log contains its actor and its target.
    for (list, each) in
        [("root-key", 1), ("api", 1), ("namespace", 1), ("migration", 1), ("audit", 2)]
    {
        let lines = run(data.path(), &[list, "list"]);
        let text = String::from_utf8_lossy(&lines.stdout);
        // The first line is the header.
        assert!(text.lines().count() > 1, "{list}: {text}");
        for line in text.lines().skip(1) {
            assert_eq!(line.matches(ESCAPED_NAME).count(), each, "{list}: {line:?}");
            assert!(!line.contains(['\u{1b}', '\u{202e}']), "{list}: {line:?}");
        }
        let output = run(data.path(), &[list, "list", "--json"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{list}: {text:?}");
        assert!(
            parse_json(&output)[0].to_string().contains(&json!(HOSTILE).to_string()),
            "{text:?}"
        );
    }
}
