//! Tests the secrets that `deploy/make-secrets` creates.

use std::os::unix::fs::symlink;
use std::process::Command;

#[test]
fn make_secrets_creates_random_secrets_without_openssl() {
    let directory = tempfile::tempdir().unwrap();
    let [deploy, tools] = ["deploy", "tools"].map(|name| directory.path().join(name));
    for created in [&deploy, &tools] {
        std::fs::create_dir(created).unwrap();
    }
    let script = deploy.join("make-secrets");
    std::fs::copy("deploy/make-secrets", &script).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for tool in ["bash", "cat", "chmod", "dirname", "mkdir", "mv", "od", "tr"] {
        let mut found = std::env::split_paths(&path).map(|it| it.join(tool));
        let found = found.find(|it| it.exists()).expect(tool);
        symlink(found, tools.join(tool)).unwrap();
    }

    let output = Command::new(script).env("PATH", &tools).output().unwrap();

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in [
        "postgres_password",
        "keyward_password",
        "analytics_password",
        "redis_password",
        "root_key",
        "master_key",
    ] {
        let secret = std::fs::read_to_string(directory.path().join("secrets").join(name)).unwrap();
        assert_eq!(secret.trim_end().len(), 64, "{name}");
    }
}
