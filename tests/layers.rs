//! Tests the layers of the program that Cargo does not separate. Those of the crates follow from their manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A layer, and the modules of the program and the crates that it must not use.
const FORBIDDEN: &[(&str, &[&str])] =
    &[("src/http", &["crate::cli", "crate::background", "analytics", "store", "limiter"])];

/// A library, and the only allowed that use it.
const CONFINED: &[(&str, &[&str])] = &[
    ("axum", &["src/http"]),
    ("hyper", &["src/http"]),
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

#[test]
fn modules_of_the_domain_do_not_import_each_other_in_a_cycle() {
    let mut imports = module_imports(Path::new("crates/domain/src"));
    assert!(imports["keys"].contains("credits"), "the imports were read: {imports:?}");

    // Modules that import none of the rest are removed until none is left.
    while !imports.is_empty() {
        let left: BTreeSet<_> = imports.keys().cloned().collect();
        let count = imports.len();
        imports.retain(|_, imported| !imported.is_disjoint(&left));
        assert!(imports.len() < count, "a cycle among {imports:#?}");
    }
}

/// Returns the other top-level modules that each module of a crate imports or names.
fn module_imports(crate_root: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in read_sources(crate_root) {
        let relative = path.strip_prefix(crate_root).expect("a source of the crate");
        let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
        let module = parts[0].trim_end_matches(".rs").to_owned();
        if module == "lib" {
            continue;
        }
        // The path from this file to the root of the crate.
        let depth = parts.len() - usize::from(parts.last().is_some_and(|file| file == "mod.rs"));
        let to_root = "super::".repeat(depth);
        let imported = imports.entry(module.clone()).or_default();
        let lines = text.lines().take_while(|line| !line.starts_with("mod tests"));
        let code = lines.filter(|line| !line.trim_start().starts_with("//"));
        let code = code.collect::<Vec<_>>().join("\n");
        imported.extend(names_after(&code, &to_root));
        imported.extend(names_after(&code, "crate::"));
        imported.remove(&module);
    }
    imports
}

/// Returns the first names of the paths that begin with a prefix, those of a group included.
fn names_after(code: &str, prefix: &str) -> Vec<String> {
    let first_name = |path: &str| {
        let path = path.trim_start();
        let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
        path[..end].to_owned()
    };
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        let is_longer_path = code[..at].ends_with("super::");
        let rest = &code[at + prefix.len()..];
        match rest.strip_prefix('{') {
            _ if is_longer_path => {}
            None => names.push(first_name(rest)),
            Some(group) => {
                let group = &group[..group.find(';').unwrap_or(group.len())];
                let (mut depth, mut start) = (0_u32, 0);
                for (end, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth > 0 => depth -= 1,
                        ',' | '}' if depth == 0 => {
                            names.push(first_name(&group[start..end]));
                            start = end + 1;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    names
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
