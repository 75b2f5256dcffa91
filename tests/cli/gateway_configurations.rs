//! Tests the configurations of gateways that commands print.

use domain::gateways::configurations::GatewayProgram;

use super::deployments::Deployment;
use super::*;
use crate::support::certificates::Authority;

/// A deployment with the policy `orders`.
fn with_policy() -> Deployment {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    deployment.json(&["gateway", "create", "--name", "orders", "--api", &api, "--meta", "tier"]);
    deployment
}

#[test]
fn every_gateway_has_a_configuration_of_the_policy() {
    let deployment = with_policy();
    let policy = deployment.json(&["gateway", "get", "orders"]);
    let id = policy["policyId"].as_str().unwrap();
    for program in GatewayProgram::ALL {
        let text = deployment.text(&["gateway", "config", "orders", "--for", program.name()]);

        assert!(text.contains("orders") || text.contains(id), "{program:?}: {text}");
        assert!(!text.contains("/gateway/edge") && !text.contains("keyward_gateway_1"), "{text}");
        let files = deployment.json(&["gateway", "config", "orders", "--for", program.name()]);
        let files = files.as_array().unwrap();
        for file in files {
            let name = file["name"].as_str().unwrap();
            assert_eq!(text.contains(&format!("==> {name} <==")), files.len() > 1, "{name}");
            let lines = file["text"].as_str().unwrap().trim_end();
            assert!(text.contains(lines), "{name} is not in {text}");
        }
        // What runs on one machine names the listening address.
        let is_cluster = program == GatewayProgram::Kubernetes;
        assert_eq!(text.contains("127.0.0.1"), !is_cluster, "{program:?}: {text}");
    }
}

#[test]
fn configuration_names_the_given_addresses() {
    let deployment = with_policy();
    let config = [
        "gateway",
        "config",
        "orders",
        "--for",
        "haproxy",
        "--address",
        "10.0.0.5:3000",
        "--address",
        "[fd00::6]:3000",
        "--service",
        "10.0.0.9:8000",
    ];

    let text = deployment.text(&config);

    for line in [
        "    server keyward-1 10.0.0.5:3000\n",
        "    server keyward-2 [fd00::6]:3000\n",
        "    server service 10.0.0.9:8000\n",
        "    http-request lua.keyward orders\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[test]
fn configuration_is_written_to_a_directory() {
    let deployment = with_policy();
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("etc/haproxy");
    let inner = inner.to_str().unwrap();
    let config = ["gateway", "config", "orders", "--for", "haproxy", "--directory", inner];

    let text = deployment.text(&config);

    assert_eq!(text, format!("wrote haproxy.cfg, keyward.lua to {inner}\n"));
    let written = std::fs::read_to_string(directory.path().join("etc/haproxy/haproxy.cfg"));
    assert!(written.unwrap().contains("lua.keyward orders"));
    let file = deployment.file("file", "");
    let config = ["gateway", "config", "orders", "--for", "haproxy", "--directory", &file];
    assert_rejected(&deployment.run(&config), 1, &["failed to write the configuration", &file]);
}

#[test]
fn configuration_fails_when_input_is_invalid() {
    let deployment = with_policy();
    let config =
        |options: &[&str]| deployment.run(&[&["gateway", "config", "orders"], options].concat());

    assert_rejected(&config(&[]), 2, &["missing --for <GATEWAY>"]);
    assert_rejected(&config(&["--for", "apache"]), 2, &["apache", "nginx", "kubernetes"]);
    for address in ["10.0.0.5", "10.0.0.5:0", "10.0.0.5:65536", "ftp://a:1", "a b:1"] {
        let output = config(&["--for", "nginx", "--address", address]);
        assert_rejected(&output, 2, &["--address", address]);
    }
    assert!(config(&["--for", "nginx", "--address", "http://10.0.0.5:65535/"]).status.success());
    let cluster = config(&["--for", "kubernetes", "--address", "10.0.0.5:1"]);
    assert_rejected(&cluster, 2, &["--address", "kubernetes"]);
    let unknown = deployment.run(&["gateway", "config", "none", "--for", "nginx"]);
    assert_rejected(&unknown, 2, &["gateway policy none does not exist"]);
    for (options, parts) in [
        (&["--server-name", "a"][..], ["--server-name and --ca-file", "TLS"]),
        (&["--ca-file", "/ca"], ["--server-name and --ca-file", "TLS"]),
        (&["--address", "https://a:1", "--address", "b:1"], ["--address", "https for all"]),
        (&["--address", "https://10.0.0.5:1"], ["--server-name", "is required"]),
        (&["--address", "https://a:1", "--server-name", "a b"], ["--server-name", "253"]),
        (&["--address", "https://a:1", "--ca-file", "ca.pem"], ["--ca-file", "absolute"]),
    ] {
        let output = config(&[&["--for", "nginx"], options].concat());
        assert_rejected(&output, 2, &parts);
    }
}

#[test]
fn configuration_uses_tls_when_this_server_listens_with_it() {
    let deployment = with_policy();
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(directory.path().join("ca.pem"));
    let certificate = authority.issue("127.0.0.1", directory.path(), "server");
    let config = |options: &[&str]| {
        let mut command = deployment.command();
        command
            .env("KEYWARD_TLS_CERT", &certificate.certificate)
            .env("KEYWARD_TLS_KEY", &certificate.key)
            .args(["gateway", "config", "orders", "--for", "nginx"]);
        command.args(options).output().unwrap()
    };

    let named = config(&["--server-name", "keys.internal", "--ca-file", "/etc/keys-ca.pem"]);

    let text = String::from_utf8(named.stdout).unwrap();
    for line in [
        "        proxy_pass https://keyward/gateway/orders?mode=nginx;\n",
        "        proxy_ssl_name keys.internal;\n",
        "        proxy_ssl_trusted_certificate /etc/keys-ca.pem;\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert_rejected(&config(&[]), 2, &["--server-name is required", "DNS name"]);
    let plain = config(&["--address", "http://10.0.0.5:3000"]);
    assert!(
        String::from_utf8(plain.stdout)
            .unwrap()
            .contains("proxy_pass http://keyward/gateway/orders")
    );
}
