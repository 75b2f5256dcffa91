//! Tests the metric that tells when the certificate expires.

use super::*;

/// The beginnings of 2040 and 2041, in Unix seconds.
const ENDS_AT: [&str; 2] = ["2208988800", "2240611200"];

#[test]
fn metric_is_the_expiry_of_the_certificate_in_use() {
    let _turn = share_turn();
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(directory.path().join("ca.pem"));
    // Issued again, it replaces the files of the first one.
    let issue = |year: i32| authority.issue_until("127.0.0.1", directory.path(), "server", year);
    let server = launch(&directory, &issue(2040), &[]);
    let expiry = || {
        let metrics = curl(server.address, &authority.file, &[], "/metrics").body;
        let name = "keyward_certificate_expiry_timestamp_seconds ";
        metrics.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
    };
    assert_eq!(expiry().as_deref(), Some(ENDS_AT[0]));

    issue(2041);

    wait_until("the metric is that of the new one", || expiry().as_deref() == Some(ENDS_AT[1]));
}
