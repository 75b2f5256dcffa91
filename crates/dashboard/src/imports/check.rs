//! Checks every row of a file before anything is imported.

use std::collections::HashSet;

use domain::keys::{self, ImportRejection, ImportedKeyFields};
use foundation::error::Result;
use foundation::id::ApiId;
use foundation::model::Algorithm;
use foundation::secret::KeyHash;
use serde_json::Value;

use super::super::analytics::download::{encode_csv, escape_formula};
use super::super::page_request::WorkspaceRequest;
use super::columns::ColumnMapping;
use super::rows::read_key;
use super::table::ImportTable;

/// The rows of a file, by whether they can be imported.
pub struct CheckedRows {
    pub valid: Vec<(RowLabel, ImportedKeyFields)>,
    /// In the order of the file.
    pub invalid: Vec<SkippedRow>,
}

/// What identifies a row for the user.
#[derive(Debug, Clone, Default)]
pub struct RowLabel {
    /// The line in CSV, or the position in JSON.
    pub number: u64,
    pub name: String,
    pub external_id: String,
}

impl RowLabel {
    /// Returns the name of the key, or its external ID.
    pub fn title(&self) -> &str {
        if self.name.is_empty() { &self.external_id } else { &self.name }
    }
}

/// A row that is not imported, and why.
#[derive(Debug, Clone)]
pub struct SkippedRow {
    pub label: RowLabel,
    pub faults: Vec<String>,
}

/// Checks the fields of every row, and whether its hash is new.
pub async fn check_rows(
    request: &WorkspaceRequest,
    api: &ApiId,
    algorithm: Algorithm,
    table: &ImportTable,
    mapping: &ColumnMapping,
) -> Result<CheckedRows> {
    let (valid, mut invalid) = read_rows(table, mapping);
    let hashes = valid.iter().map(|(_, key)| key.hash.as_str());
    let context = &request.page_request.app.context;
    let used = keys::list_used_hashes(context, &request.caller, api, algorithm, hashes).await?;
    let used: HashSet<String> = used.into_iter().map(str::to_owned).collect();
    let (used, valid): (Vec<_>, Vec<_>) =
        valid.into_iter().partition(|(_, key)| used.contains(&key.hash));
    invalid.extend(used.into_iter().map(|(label, _)| SkippedRow {
        label,
        faults: vec![rejection_text(ImportRejection::AlreadyExists).to_owned()],
    }));
    invalid.sort_by_key(|row| row.label.number);
    Ok(CheckedRows { valid, invalid })
}

/// Reads each row into a key.
fn read_rows(
    table: &ImportTable,
    mapping: &ColumnMapping,
) -> (Vec<(RowLabel, ImportedKeyFields)>, Vec<SkippedRow>) {
    let (mut valid, mut invalid, mut hashes) = (Vec::new(), Vec::new(), HashSet::new());
    for row in &table.rows {
        let mut label = RowLabel { number: row.0, ..RowLabel::default() };
        if row.1.len() != table.columns.len() {
            let fault = format!("must have {} values, one for each column", table.columns.len());
            invalid.push(SkippedRow { label, faults: vec![fault] });
            continue;
        }
        let key = mapping.to_key(row.1.clone());
        let text =
            |name: &str| key.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        (label.name, label.external_id) = (text("name"), text("externalId"));
        match read_key(key) {
            Err(faults) => invalid.push(SkippedRow { label, faults }),
            Ok(key) if !hashes.insert(normalize_hash(&key.hash)) => {
                let fault = rejection_text(ImportRejection::Duplicate).to_owned();
                invalid.push(SkippedRow { label, faults: vec![fault] });
            }
            Ok(key) => valid.push((label, key)),
        }
    }
    (valid, invalid)
}

/// Returns the same text for a hash in hex and in base64.
fn normalize_hash(hash: &str) -> String {
    let parsed = KeyHash::from_hex(hash).or_else(|| KeyHash::from_base64(hash));
    parsed.map_or_else(|| hash.to_owned(), |hash| hash.to_hex())
}

pub fn rejection_text(why: ImportRejection) -> &'static str {
    match why {
        ImportRejection::AlreadyExists => "Already imported",
        ImportRejection::Duplicate => "Duplicate in this import",
    }
}

/// Returns the rows as CSV, without their keys and hashes.
pub fn skipped_csv(rows: &[SkippedRow]) -> Result<String> {
    let header = ["row", "name", "external_id", "problem"].map(str::to_owned).to_vec();
    let to_line = |row: &SkippedRow| {
        let RowLabel { number, name, external_id } = &row.label;
        let texts = [name, external_id, &row.faults.join("; ")].map(|text| escape_formula(text));
        [number.to_string()].into_iter().chain(texts).collect()
    };
    let lines = [header].into_iter().chain(rows.iter().map(to_line)).collect();
    Ok(String::from_utf8_lossy(&encode_csv(&lines)?).into_owned())
}
