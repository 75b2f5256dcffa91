//! Tests the findings about a data directory: its database and its master key.

use super::*;

#[test]
fn doctor_creates_no_files_when_no_server_runs() {
    let data = tempfile::tempdir().unwrap();
    parse_json(&run(data.path(), &["migrate", "--json"]));
    let files = || std::fs::read_dir(data.path()).unwrap().count();
    assert_eq!(files(), 2);

    let told = DoctorReport::by(&mut embedded(data.path()));

    told.assert_problems(&[]).assert_finding("schema", "ok", &[]).assert_finding(
        "events",
        "ok",
        &[],
    );
    assert_eq!(files(), 2);
}

#[test]
fn doctor_reports_invalid_and_missing_data_directories() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("a-file");
    std::fs::write(&file, "not a directory").unwrap();

    DoctorReport::by(&mut embedded(&file)).assert_problems(&["data-directory", "master-key-file"]);
    DoctorReport::by(&mut embedded(&data.path().join("none")))
        .assert_problems(&[])
        .assert_finding("data-directory", "warning", &["the first start creates it"])
        .assert_finding("database", "warning", &["the first start creates it"]);
    assert!(!data.path().join("none").exists());
}

#[test]
fn doctor_reports_corrupted_database_page() {
    use std::os::unix::fs::FileExt as _;
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(embedded(data.path()));
    server.signal("TERM");
    server.wait();
    let path = data.path().join("keyward.db");
    // Checkpoints changes that may still be in the write-ahead log, if a connection was closed without a checkpoint.
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let url = format!("sqlite://{}", path.display());
        let mut file = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut file).await.unwrap();
        file.close().await.unwrap();
    });
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let pages = file.metadata().unwrap().len() / 4096;
    assert!(pages > 10, "{pages}");

    for page in 5..pages {
        file.write_all_at(&[0xa5; 4096], page * 4096).unwrap();
    }

    let told = DoctorReport::by(&mut embedded(data.path()));
    assert_eq!(told.finding("integrity")["state"], "problem", "{:?}", told.findings);
    assert_eq!(told.status, 1);
}

#[test]
fn doctor_warns_when_rotation_of_master_key_was_interrupted() {
    let data = tempfile::tempdir().unwrap();
    drop(Server::start(embedded(data.path())));
    let next = data.path().join("master.key.next");
    let doctor = || DoctorReport::by(&mut embedded(data.path()));
    let has_warning = |told: &DoctorReport| {
        told.findings.iter().any(|finding| finding["check"] == "master-key-file")
    };
    assert!(!has_warning(&doctor()));

    std::fs::write(&next, format!("{}\n", "a5".repeat(32))).unwrap();

    doctor().assert_problems(&[]).assert_finding(
        "master-key-file",
        "warning",
        &["master.key.next exists", "keyward vault rotate"],
    );
    // Its keys are configured, so the files are not used.
    let mut configured = embedded(data.path());
    configured.env("KEYWARD_MASTER_KEY", "a5".repeat(32));
    assert!(!has_warning(&DoctorReport::by(&mut configured)));
    parse_json(&run(data.path(), &["vault", "rotate", "--json"]));
    assert!(!next.exists() && !has_warning(&doctor()));
}

#[test]
fn doctor_reports_missing_master_key() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    vault::recoverable(&server, data.path());
    drop(server);
    let file = data.path().join("master.key");

    std::fs::remove_file(&file).unwrap();
    DoctorReport::by(&mut embedded(data.path())).assert_problems(&["master-key"]).assert_finding(
        "master-key",
        "problem",
        &["no master key is configured", "1 workspace"],
    );
    std::fs::write(&file, "short").unwrap();
    let told = DoctorReport::by(&mut embedded(data.path()));
    told.assert_problems(&["master-key", "master-key-file"]);
}
