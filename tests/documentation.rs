//! Tests that the links of the documentation lead to files and headings that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Returns the pages: those in the root, and those in the directories with documentation.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut directories = vec![PathBuf::new(), PathBuf::from("docs"), PathBuf::from("benches")];
    while let Some(directory) = directories.pop() {
        let is_root = directory.as_os_str().is_empty();
        let path = if is_root { Path::new(".") } else { directory.as_path() };
        for entry in std::fs::read_dir(path).unwrap() {
            let path = directory.join(entry.unwrap().file_name());
            if path.is_dir() && !is_root {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// Returns the lines of a page that are not in a block of code.
fn prose(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// Returns the anchors of the headings of a page.
pub fn anchors(page: &Path) -> BTreeSet<String> {
    let lines = prose(page);
    let headings = lines
        .iter()
        .filter_map(|line| line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' '));
    headings.map(anchor).collect()
}

/// Returns the anchor of a heading, as GitHub forms it.
fn anchor(heading: &str) -> String {
    let heading = heading.to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the targets of the links of a page to files and headings.
fn links(page: &Path) -> Vec<String> {
    let mut links = Vec::new();
    for line in prose(page) {
        for rest in line.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or(rest);
            if !target.contains("://") {
                links.push(target.to_owned());
            }
        }
    }
    links
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = pages();
    assert!(pages.len() > 50, "{pages:?}");
    let mut broken = Vec::new();

    for page in &pages {
        for link in links(page) {
            let (file, heading) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let is_valid =
                target.exists() && (heading.is_empty() || anchors(&target).contains(heading));
            if !is_valid {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }

    assert!(broken.is_empty(), "{broken:#?}");
}
