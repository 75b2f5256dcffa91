//! Tests the dependencies of Keyward against `deny.toml`: licenses, banned crates, and sources of crates.
//!
//! The tests check the crates of every platform in that file, with all features; cargo fetches manifests that are missing.

use std::collections::BTreeMap;
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;
use spdx::{Expression, ParseMode};

#[derive(Deserialize)]
struct DenyRules {
    graph: GraphRules,
    licenses: LicenseRules,
    bans: BanRules,
    sources: SourceRules,
}

#[derive(Deserialize)]
struct GraphRules {
    targets: Vec<String>,
}

#[derive(Deserialize)]
struct LicenseRules {
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct BanRules {
    wildcards: String,
    deny: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SourceRules {
    unknown_registry: String,
    unknown_git: String,
    allow_registry: Vec<String>,
}

fn rules() -> DenyRules {
    basic_toml::from_str(include_str!("../deny.toml")).expect("deny.toml is TOML")
}

/// Returns the packages of all platforms that are not of this workspace.
fn packages() -> Vec<Value> {
    let mut packages = BTreeMap::new();
    for target in rules().graph.targets {
        let metadata = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
            .args(["--filter-platform", &target])
            .output()
            .expect("cargo runs");
        assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
        let metadata: Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
        for package in metadata["packages"].as_array().expect("packages") {
            if !package["source"].is_null() {
                packages.insert(package["id"].to_string(), package.clone());
            }
        }
    }
    packages.into_values().collect()
}

/// Whether an SPDX expression, or its older form with slashes, is satisfied by these licenses alone.
fn is_satisfied(expression: &str, allowed: &[String]) -> bool {
    let expression =
        Expression::parse_mode(expression, ParseMode::LAX).expect("an SPDX expression");
    expression.evaluate(|needed| allowed.contains(&needed.to_string()))
}

#[test]
fn dependencies_have_allowed_licenses() {
    let allowed = rules().licenses.allow;
    let packages = packages();
    assert!(packages.len() > 100, "{} packages", packages.len());

    for package in &packages {
        let license = package["license"].as_str().unwrap_or_default();
        assert!(!license.is_empty(), "{} has no license", package["id"]);
        assert!(is_satisfied(license, &allowed), "{} has {license}", package["id"]);
    }
    for license in &allowed {
        let tells = |package: &Value| package["license"].to_string().contains(license.as_str());
        assert!(packages.iter().any(tells), "{license} is allowed, and no package uses it");
    }
}

#[test]
fn dependencies_come_from_registry_and_are_not_banned() {
    let DenyRules { bans, sources, .. } = rules();
    let strict = [bans.wildcards, sources.unknown_registry, sources.unknown_git];
    assert!(strict.iter().all(|word| word == "deny"), "{strict:?}");

    for package in packages() {
        let (name, source) =
            (package["name"].as_str().unwrap(), package["source"].as_str().unwrap());
        let is_known = sources
            .allow_registry
            .iter()
            .any(|registry| source.strip_prefix("registry+") == Some(registry.as_str()));
        assert!(is_known, "{name} comes from {source}");
        assert!(!bans.deny.iter().any(|banned| banned == name), "{name} is banned");
    }
    let own: Value =
        basic_toml::from_str(include_str!("../Cargo.toml")).expect("Cargo.toml is TOML");
    for (name, requirement) in own["workspace"]["dependencies"].as_object().expect("a table") {
        if requirement["path"].is_string() {
            continue;
        }
        let version = requirement.as_str().or_else(|| requirement["version"].as_str());
        assert!(version.is_some_and(|version| version != "*"), "{name} has no version");
    }
}
