//! Tests exports that fail.

use super::*;

/// More than a page, and the first key of the next one, which is read with it.
const KEYS: usize = 502;

/// Changes the start of the last key.
fn update_last_key(data_dir: &Path, sql: &'static str) {
    let url = format!("sqlite://{}", data_dir.join("keyward.db").display());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut file = sqlx::SqliteConnection::connect(&url).await.unwrap();
        let changed = sqlx::query(sql).execute(&mut file).await.unwrap();
        assert_eq!(changed.rows_affected(), 1);
        file.close().await.unwrap();
    });
}

#[test]
fn export_leaves_no_file_when_it_fails_between_pages() {
    let (data, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let created = parse_json(&run(data.path(), &["api", "create", "--name", "payments", "--json"]));
    let api = created["apiId"].as_str().unwrap();
    let input = directory.path().join("old.jsonl");
    let lines: Vec<_> = (0..KEYS).map(|n| format!("{{\"key\": \"an_old_key_{n}\"}}\n")).collect();
    std::fs::write(&input, lines.concat()).unwrap();
    let import = ["import", input.to_str().unwrap(), "--api", api, "--json"];
    assert_eq!(parse_json(&run(data.path(), &import))["imported"], KEYS);
    let target = directory.path().join("keys.jsonl");
    let export = ["export", "--api", api, "--output", target.to_str().unwrap()];
    let files = || std::fs::read_dir(directory.path()).unwrap().count();

    update_last_key(
        data.path(),
        "UPDATE keys SET start = X'FF' WHERE id = (SELECT MAX(id) FROM keys)",
    );
    let failed = run(data.path(), &export);
    let files_after_failure = files();
    update_last_key(
        data.path(),
        "UPDATE keys SET start = '' WHERE id = (SELECT MAX(id) FROM keys)",
    );
    let repeated = run(data.path(), &export);

    assert_rejected(&failed, 1, &["the export is incomplete"]);
    assert_eq!(files_after_failure, 1, "only the imported file");
    assert!(repeated.status.success(), "{repeated:?}");
    assert_eq!(std::fs::read_to_string(&target).unwrap().lines().count(), KEYS);
    assert_eq!(files(), 2);
}
