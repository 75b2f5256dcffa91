//! Who may use whom. Arrows point one way: cli → http → dashboard → rpc → domain → {store, limiter, issuer}; the alphabet
//! is everybody's and uses no layer.

use std::path::{Path, PathBuf};

/// A layer's folder or file, and the modules of the crate that it must not name.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("src/model.rs", LAYERS),
    ("src/model", LAYERS),
    ("src/id.rs", LAYERS),
    ("src/clock.rs", LAYERS),
    ("src/secret.rs", LAYERS),
    ("src/error.rs", LAYERS),
    ("src/config.rs", LAYERS),
    ("src/config", LAYERS),
    ("src/descriptors.rs", LAYERS),
    ("src/metrics.rs", LAYERS),
    ("src/metrics", LAYERS),
    ("src/traces.rs", LAYERS),
    ("src/traces", LAYERS),
    ("src/domain", &["cli", "http", "dashboard", "rpc", "background", "analytics_worker"]),
    ("src/http", &["cli", "store", "limiter", "oidc", "background", "analytics_worker"]),
    (
        "src/dashboard",
        &["cli", "http", "store", "limiter", "oidc", "background", "analytics_worker"],
    ),
    (
        "src/rpc",
        &["cli", "http", "dashboard", "store", "limiter", "oidc", "background", "analytics_worker"],
    ),
    ("src/request", LAYERS),
];

const LAYERS: &[&str] = &[
    "app",
    "cli",
    "http",
    "dashboard",
    "rpc",
    "domain",
    "store",
    "limiter",
    "oidc",
    "background",
    "analytics_worker",
];

/// Those at the bottom, which know no layer but themselves.
const LOWEST: &[&str] = &["store", "limiter", "oidc"];

/// A crate, and where alone it may be named.
const CONFINED: &[(&str, &[&str])] = &[
    ("axum::", &["src/http", "src/rpc", "src/dashboard", "src/request"]),
    ("hyper::", &["src/http"]),
    ("jsonschema::", &["src/rpc"]),
    ("aide::", &["src/rpc"]),
    ("redis::", &["src/limiter", "src/error.rs", "src/app.rs", "src/background"]),
    ("askama::", &["src/dashboard"]),
    ("argon2::", &["src/domain/users"]),
    ("sqlx::", &["src/store", "src/error.rs"]),
    ("prometheus_client::", &["src/metrics.rs", "src/metrics"]),
    ("opentelemetry", &["src/traces", "src/http/request_span.rs"]),
    ("tracing_opentelemetry", &["src/traces"]),
    ("openidconnect::", &["src/oidc"]),
    ("reqwest::", &["src/oidc", "src/store/clickhouse"]),
    ("chrono::", &["src/oidc"]),
];

#[test]
fn no_layer_names_one_above_it() {
    let upper =
        FORBIDDEN.iter().map(|(layer, forbidden)| ((*layer).to_owned(), forbidden.to_vec()));
    let lowest = LOWEST.iter().map(|layer| {
        let others = LAYERS.iter().copied().filter(|other| other != layer);
        (format!("src/{layer}"), others.collect())
    });
    for (layer, forbidden) in upper.chain(lowest) {
        for (path, text) in sources(Path::new(&layer)) {
            for module in &forbidden {
                let name = format!("crate::{module}::");
                assert!(!text.contains(&name), "{} names {name}", path.display());
            }
        }
    }
}

#[test]
fn a_crate_is_named_only_where_it_belongs() {
    for (path, text) in sources(Path::new("src")) {
        for (name, places) in CONFINED {
            let belongs = places.iter().any(|place| path.starts_with(place));
            let named =
                text.lines().any(|line| line.trim_start().starts_with(&format!("use {name}")));
            assert!(belongs || !named, "{} names {name}", path.display());
        }
    }
}

#[test]
fn both_engines_have_the_same_migrations() {
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

fn sources(path: &Path) -> Vec<(PathBuf, String)> {
    if path.is_file() {
        return vec![(path.to_owned(), std::fs::read_to_string(path).expect("a source"))];
    }
    let entries = std::fs::read_dir(path).expect("a folder");
    entries.flat_map(|entry| sources(&entry.expect("an entry").path())).collect()
}
