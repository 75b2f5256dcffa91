//! Tests namespaces of the standalone limiter with commands of the operator.

use super::*;

#[test]
fn namespace_is_listed_updated_and_deleted_while_server_runs() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let limit = || {
        let check = json!({
            "namespace": "email.send", "identifier": "user_1", "limit": 1000, "duration": 60_000,
        });
        server.v2(ROOT_KEY, "ratelimit.limit", &check)
    };
    let namespace = |arguments: &[&str]| {
        let arguments: Vec<_> = [&["namespace"], arguments, &["--json"]].concat();
        parse_json(&run(data.path(), &arguments))
    };
    assert_eq!(limit().0, 200);

    let listed = namespace(&["list"]);
    let id = listed[0]["namespaceId"].as_str().unwrap();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["onOutage"], &listed[0]["deletedAt"]),
        (&json!("email.send"), &json!("local"), &Value::Null)
    );
    assert_eq!(namespace(&["set", "email.send", "--on-outage", "closed"])["onOutage"], "closed");
    assert_eq!(namespace(&["set", id, "--on-outage", "open"])["namespaceId"], id);
    assert_eq!(namespace(&["list"])[0]["onOutage"], "open");
    assert!(namespace(&["delete", "email.send"])["deletedAt"].is_i64());
    let deleted = Stopwatch::new();
    let answer = loop {
        let (status, answer) = limit();
        if status != 200 {
            break answer;
        }
        assert!(deleted.elapsed_ms() < 2_000, "still accepted");
    };

    assert!(
        answer["error"]["type"].as_str().unwrap().ends_with("/errors/ratelimit_namespace_gone")
    );
    let text = String::from_utf8(run(data.path(), &["namespace", "list"]).stdout).unwrap();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["ID", "NAME", "ON", "OUTAGE", "STATUS", "CREATED"]);
    assert_eq!((lines.len(), &lines[1][..4]), (2, &[id, "email.send", "open", "deleted"][..]));
    assert_eq!(
        audit_events(data.path(), id),
        [
            "rootkey 127.0.0.1 ratelimitNamespace.create",
            "system - ratelimitNamespace.update",
            "system - ratelimitNamespace.update",
            "system - ratelimitNamespace.delete",
        ]
    );
}

#[test]
fn namespace_command_fails_when_namespace_or_policy_is_unknown() {
    let data = tempfile::tempdir().unwrap();
    let namespace = |arguments: &[&str]| run(data.path(), &[&["namespace"], arguments].concat());

    let words = ["rate-limit namespace email.send does not exist"];
    assert_rejected(&namespace(&["set", "email.send", "--on-outage", "open"]), 2, &words);
    assert_rejected(&namespace(&["delete", "email.send"]), 2, &words);
    assert_rejected(&namespace(&["delete", "email.send", "--workspace", "ws_none"]), 2, &words);
    for policy in [&["--on-outage", "ajar"][..], &[]] {
        let output = namespace(&[&["set", "email.send"], policy].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("local") && text.contains("closed"), "{text}");
    }
    assert_eq!(parse_json(&namespace(&["list", "--json"])), json!([]));
}
