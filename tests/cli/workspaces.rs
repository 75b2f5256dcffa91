//! Tests the commands of workspaces.

use super::deployments::{Deployment, text_of};
use super::*;

#[test]
fn workspace_is_renamed_within_bounds() {
    for deployment in Deployment::both() {
        let rename = |name: &str| deployment.run(&["workspace", "rename", "--name", name]);

        let text = deployment.text(&["workspace", "rename", "--name", &"é".repeat(256)]);

        assert_eq!(text.trim(), format!("renamed ws_default to {}", "é".repeat(256)));
        assert_eq!(text_of(&deployment.json(&["workspace", "list"])[0], "name"), "é".repeat(256));
        for invalid in ["", "a\u{7}", &"é".repeat(257)] {
            assert_rejected(&rename(invalid), 2, &["name"]);
        }
        let unknown =
            deployment.run(&["workspace", "rename", "--name", "a", "--workspace", "ws_none"]);
        assert_rejected(&unknown, 2, &["workspace ws_none does not exist"]);
    }
}

#[test]
fn lists_of_a_workspace_that_does_not_exist_are_rejected() {
    let deployment = Deployment::embedded();
    for resource in ["api", "audit", "gateway", "key", "migration", "namespace", "root-key"] {
        let output = deployment.run(&[resource, "list", "--workspace", "ws_none"]);
        assert_rejected(&output, 2, &["workspace ws_none does not exist"]);
    }
}

/// The trigger stands for a full disk.
#[test]
fn lists_are_printed_while_the_database_cannot_be_written() {
    let data = tempfile::tempdir().unwrap();
    let list = |resource: &str| run(data.path(), &[resource, "list", "--json"]);
    assert_eq!(parse_json(&list("key")), json!([]));
    let url = format!("sqlite://{}", data.path().join("keyward.db").display());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let sql = "CREATE TRIGGER full_disk BEFORE INSERT ON workspaces
            BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END";
        let mut file = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(sql).execute(&mut file).await.unwrap();
    });

    for resource in ["api", "audit", "key", "root-key"] {
        assert_eq!(list(resource).status.code(), Some(0), "{resource}");
    }
}

#[test]
fn workspaces_are_listed_and_separate() {
    for deployment in Deployment::both() {
        let other =
            text_of(&deployment.json(&["workspace", "create", "--name", "other"]), "workspaceId");

        let all = deployment.json(&["workspace", "list"]);
        let text = deployment.text(&["workspace", "list"]);

        let ids: Vec<_> =
            all.as_array().unwrap().iter().map(|it| text_of(it, "workspaceId")).collect();
        assert_eq!(ids.len(), 2);
        assert!(ids.contains(&other) && ids.contains(&"ws_default".to_owned()), "{all}");
        let first: Vec<_> = text.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(first, ["ID", "NAME", "STATUS", "CREATED"]);
        let api = deployment.create_api();
        let foreign = deployment.run(&["api", "get", &api, "--workspace", &other]);
        assert_rejected(&foreign, 2, &[&api, "does not exist"]);
        let unknown = deployment.run(&["api", "create", "--name", "abc", "--workspace", "ws_none"]);
        assert_rejected(&unknown, 2, &["workspace ws_none does not exist"]);
    }
}
