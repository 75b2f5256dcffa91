//! Tests the dependencies of Keyward against `deny.toml`: licenses, banned crates, and sources of crates.
//!
//! The tests check the crates of this platform and of the default features, whose manifests are available when the
//! tests run; `cargo deny check licenses bans sources` checks those of all platforms.

use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct DenyRules {
    licenses: LicenseRules,
    bans: BanRules,
    sources: SourceRules,
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

fn packages() -> Vec<Value> {
    let version = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", host])
        .output()
        .expect("cargo runs");
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages").clone();
    packages.into_iter().filter(|package| !package["source"].is_null()).collect()
}

/// Whether an SPDX expression, or its older form with slashes, is satisfied by these licenses alone.
fn is_satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words: Vec<_> = spaced.split_whitespace().collect();
    words.reverse();
    let met = any_of(&mut words, allowed);
    assert!(words.is_empty(), "{expression} is not an SPDX expression");
    met
}

fn any_of(words: &mut Vec<&str>, allowed: &[String]) -> bool {
    let mut met = all_of(words, allowed);
    while words.last() == Some(&"OR") {
        words.pop();
        met |= all_of(words, allowed);
    }
    met
}

fn all_of(words: &mut Vec<&str>, allowed: &[String]) -> bool {
    let mut met = one(words, allowed);
    while words.last() == Some(&"AND") {
        words.pop();
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut Vec<&str>, allowed: &[String]) -> bool {
    let mut name = words.pop().expect("a license").to_owned();
    if name == "(" {
        let met = any_of(words, allowed);
        assert_eq!(words.pop(), Some(")"));
        return met;
    }
    if words.last() == Some(&"WITH") {
        words.pop();
        name = format!("{name} WITH {}", words.pop().expect("an exception"));
    }
    allowed.contains(&name)
}

#[test]
fn license_expression_is_satisfied_by_allowed_licenses_alone() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);

    for met in [
        "MIT",
        "MIT/GPL-3.0",
        "GPL-3.0 OR MIT",
        "(GPL-3.0 OR MIT) AND ISC",
        "MIT AND ISC OR GPL-3.0",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(is_satisfied(met, &allowed), "{met}");
    }
    for unmet in
        ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND Apache-2.0", "GPL-3.0 OR Apache-2.0"]
    {
        assert!(!is_satisfied(unmet, &allowed), "{unmet}");
    }
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
