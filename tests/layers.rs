//! Tests the layers of the program that Cargo does not separate. Those of the crates follow from their manifests.

use std::path::{Path, PathBuf};

/// A layer, and the modules of the program and the crates that it must not use.
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "src/domain",
        &["crate::cli", "crate::http", "crate::dashboard", "crate::rpc", "crate::background"],
    ),
    ("src/http", &["crate::cli", "crate::background", "store", "limiter", "oidc"]),
    (
        "src/dashboard",
        &["crate::cli", "crate::http", "crate::background", "store", "limiter", "oidc"],
    ),
    (
        "src/rpc",
        &[
            "crate::cli",
            "crate::http",
            "crate::dashboard",
            "crate::background",
            "store",
            "limiter",
            "oidc",
        ],
    ),
    (
        "src/request",
        &["crate::app", "crate::domain", "crate::http", "crate::rpc", "crate::dashboard"],
    ),
];

/// A library, and the only allowed that use it.
const CONFINED: &[(&str, &[&str])] = &[
    ("axum", &["src/http", "src/rpc", "src/dashboard", "src/request"]),
    ("hyper", &["src/http"]),
    ("jsonschema", &["src/rpc"]),
    ("aide", &["src/rpc"]),
    ("askama", &["src/dashboard"]),
    ("argon2", &["src/domain/users"]),
    ("opentelemetry", &["src/http/request_span.rs"]),
];

#[test]
fn layers_do_not_import_higher_layers() {
    for (layer, forbidden) in FORBIDDEN {
        for (path, text) in read_sources(Path::new(layer)) {
            for module in *forbidden {
                assert!(!uses(&text, module), "{} uses {module}", path.display());
            }
        }
    }
}

#[test]
fn libraries_are_used_only_where_allowed() {
    for (path, text) in read_sources(Path::new("src")) {
        for (library, allowed) in CONFINED {
            let is_allowed = allowed.iter().any(|path_prefix| path.starts_with(path_prefix));
            assert!(is_allowed || !uses(&text, library), "{} uses {library}", path.display());
        }
    }
}

/// Whether a source uses an item of a module or crate.
fn uses(text: &str, name: &str) -> bool {
    let named = format!("{name}::");
    text.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
        line.match_indices(&named).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':')
        })
    })
}

#[test]
fn postgres_and_sqlite_have_the_same_migrations() {
    let names = |folder: &str| {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .expect("the folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        names
    };

    assert_eq!(names("migrations/postgres"), names("migrations/sqlite"));
}

fn read_sources(path: &Path) -> Vec<(PathBuf, String)> {
    if path.is_file() {
        return vec![(path.to_owned(), std::fs::read_to_string(path).expect("a source"))];
    }
    let entries = std::fs::read_dir(path).expect("a folder");
    entries.flat_map(|entry| read_sources(&entry.expect("an entry").path())).collect()
}
