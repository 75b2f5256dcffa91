//! Tests the audit log with commands of the operator.

use super::deployments::{Deployment, text_of, wait_for};
use super::*;

#[test]
fn audit_log_contains_the_origin_of_changes() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let request = format!(
        "POST /v2/apis.createApi HTTP/1.1\r\nHost: keyward\r\nConnection: close\r\n\
        Authorization: Bearer {ROOT_KEY}\r\nContent-Type: application/json\r\n\
        User-Agent: teller/1.0\r\nContent-Length: 19\r\n\r\n{{\"name\":\"payments\"}}"
    );

    let (status, answer) = exchange(server.address, request.as_bytes()).unwrap();

    assert_eq!(status, 200, "{answer}");
    let url = format!("sqlite://{}", data.path().join("keyward.db").display());
    let entry: (String, String) = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let sql = "SELECT remote_address, user_agent FROM audit WHERE event = 'api.create'";
        let mut file = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::query_as(sql).fetch_one(&mut file).await.unwrap()
    });
    assert_eq!(entry, ("127.0.0.1".into(), "teller/1.0".into()));
}

#[test]
fn audit_log_can_be_listed_filtered_and_paged() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let (_, created) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let api = created["data"]["apiId"].as_str().unwrap().to_owned();
    for name in ["one", "two", "three"] {
        server.v2(ROOT_KEY, "keys.createKey", &json!({ "apiId": api, "name": name }));
    }
    let list = |arguments: &[&str]| {
        let mut command = embedded(data.path());
        let listed =
            command.args(["audit", "list"]).args(arguments).arg("--json").output().unwrap();
        parse_json(&listed).as_array().unwrap().clone()
    };
    let names = |entries: &[Value]| -> Vec<String> {
        let name = |entry: &Value| entry["targets"][0]["name"].as_str().unwrap_or("-").to_owned();
        entries.iter().map(name).collect()
    };

    let keys = list(&["--event", "key.create"]);
    let first = list(&["--event", "key.create", "--limit", "2"]);
    let rest = list(&["--event", "key.create", "--before", first[1]["id"].as_str().unwrap()]);
    let about = list(&["--about", "payments"]);
    let actor = keys[0]["actor"]["id"].as_str().unwrap();

    assert_eq!(names(&keys), ["three", "two", "one"]);
    assert_eq!(
        (names(&first), names(&rest)),
        (vec!["three".into(), "two".into()], vec!["one".into()])
    );
    assert_eq!((about.len(), &about[0]["event"]), (1, &json!("api.create")));
    assert_eq!(list(&["--actor", actor]).len(), 4);
    assert!(list(&["--about", &api]).len() == 1 && list(&["--about", "nothing"]).is_empty());
    assert_eq!(
        (&keys[0]["actor"]["type"], &keys[0]["actor"]["name"]),
        (&json!("rootkey"), &json!("KEYWARD_ROOT_KEY"))
    );
    assert_eq!(keys[0]["remoteAddress"], "127.0.0.1");
    assert!(keys[0]["correlationId"].as_str().unwrap().starts_with("cor_"));
    let other = run(data.path(), &["workspace", "create", "--name", "other", "--json"]);
    let other = parse_json(&other);
    let entries = list(&["--workspace", other["workspaceId"].as_str().unwrap()]);
    assert_eq!((entries.len(), &entries[0]["event"]), (1, &json!("workspace.create")));
}

#[test]
fn audit_list_rejects_entries_and_events_that_do_not_exist() {
    let deployment = Deployment::embedded();
    let list = |arguments: &[&str]| deployment.run(&[&["audit", "list"], arguments].concat());

    assert_rejected(&list(&["--before", "log_none"]), 2, &["log_none", "does not exist"]);
    let after = list(&["--order", "oldest", "--after", "log_none"]);
    assert_rejected(&after, 2, &["log_none", "does not exist"]);
    assert_rejected(&list(&["--event", "keys.delete"]), 2, &["keys.delete", "key.create"]);
}

#[test]
fn audit_list_says_on_standard_error_that_there_are_more() {
    let deployment = Deployment::embedded();
    for _ in 0..3 {
        deployment.create_api();
    }
    let list = |options: &[&str]| {
        deployment.run(&[&["audit", "list", "--event", "api.create", "--json"], options].concat())
    };
    let shown = |output: &Output| parse_json(output).as_array().unwrap().clone();

    let first = list(&["--limit", "2"]);
    let entries = shown(&first);
    let last = text_of(&entries[1], "id");
    let rest = list(&["--limit", "2", "--before", &last]);

    let note = format!(
        "Showing the latest 2 entries. --limit shows more, up to 1000; --before {last} lists earlier ones.\n"
    );
    assert_eq!(String::from_utf8_lossy(&first.stderr), note);
    assert_eq!((entries.len(), shown(&rest).len()), (2, 1));
    for whole in [&rest, &list(&["--limit", "3"])] {
        assert!(whole.stderr.is_empty(), "{whole:?}");
    }
}

#[test]
fn audit_list_begins_with_the_oldest_entries_when_asked() {
    let deployment = Deployment::embedded();
    for _ in 0..3 {
        deployment.create_api();
    }
    let list = |options: &[&str]| {
        deployment.run(&[&["audit", "list", "--event", "api.create", "--json"], options].concat())
    };
    let ids = |output: &Output| -> Vec<String> {
        parse_json(output).as_array().unwrap().iter().map(|entry| text_of(entry, "id")).collect()
    };

    let newest = ids(&list(&[]));
    let first = list(&["--order", "oldest", "--limit", "2"]);
    let last = &newest[1];
    let rest = list(&["--order", "oldest", "--after", last]);

    assert_eq!(ids(&list(&["--order", "newest"])), newest);
    assert_eq!(ids(&first), [newest[2].clone(), newest[1].clone()]);
    assert_eq!(ids(&rest), [newest[0].clone()]);
    let note = format!(
        "Showing the oldest 2 entries. --limit shows more, up to 1000; --order oldest --after {last} lists later ones.\n"
    );
    assert_eq!(String::from_utf8_lossy(&first.stderr), note);
    assert!(rest.stderr.is_empty(), "{rest:?}");
    assert_rejected(&list(&["--after", last]), 2, &["--after needs --order oldest"]);
    let before = list(&["--order", "oldest", "--before", last]);
    assert_rejected(&before, 2, &["--before needs --order newest"]);
    assert_rejected(&list(&["--order", "name"]), 2, &["newest", "oldest"]);
}

#[test]
fn deleted_key_verifies_again_when_its_audit_entry_is_undone() {
    for deployment in Deployment::both() {
        let server = deployment.serve();
        let (id, key) = deployment.create_key(&deployment.create_api(), &["--credits", "10"]);
        let verify = || {
            let (_, verified) = server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key }));
            text_of(&verified["data"], "code")
        };
        let undo = |entry: &str| deployment.run(&["audit", "undo", entry, "--json"]);
        let entry_of =
            |event: &str| text_of(&deployment.json(&["audit", "list", "--event", event])[0], "id");
        wait_for(&"VALID".to_owned(), verify);
        deployment.json(&["key", "delete", &id]);
        wait_for(&"NOT_FOUND".to_owned(), verify);
        let deletion = entry_of("key.delete");

        let undone = parse_json(&undo(&deletion));

        assert_eq!(undone, json!({ "id": deletion, "undone": true }));
        wait_for(&"VALID".to_owned(), verify);
        assert_rejected(&undo(&deletion), 2, &["undone"]);
        assert_rejected(&undo("log_none"), 2, &["log_none", "does not exist"]);
        let elsewhere = deployment.json(&["workspace", "create", "--name", "other"]);
        let other = text_of(&elsewhere, "workspaceId");
        let create = entry_of("key.create");
        let foreign = deployment.run(&["audit", "undo", &create, "--workspace", &other]);
        assert_rejected(&foreign, 2, &[&create, "does not exist"]);
        assert!(deployment.text(&["audit", "undo", &create]).contains(&create));
        wait_for(&"NOT_FOUND".to_owned(), verify);
    }
}
