//! The preview of an import: what each column is, and what is wrong with which row. Nothing is stored.

use askama::Template;
use axum::extract::Path;
use domain::apis;
use domain::migrations::{self, StoredMigration};
use domain::permission::Action;
use foundation::error::Error;
use foundation::id::{ApiId, MigrationId};
use foundation::model::Api;
use serde_json::json;

use super::super::failure::Failure;
use super::super::field_reader::FieldReader;
use super::super::form::{FormErrors, split_form_errors};
use super::super::format::{format_quantity, format_size};
use super::super::keys::SelectOption;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, render_invalid_page, render_page};
use super::check::{CheckedRows, SkippedRow, check_rows};
use super::columns::{ColumnMapping, FIELDS};
use super::hashing::hash_keys;
use super::table::{HashedIn, ImportTable, TABLE_BYTES_MAX, parse_file, parse_table};
use super::{build_page, chosen_api, format_more, import_name};

/// The number of rows with errors that are listed.
pub const SKIPPED_SHOWN_MAX: usize = 1_000;

/// An uploaded file, with its rows checked.
pub struct Upload {
    pub stored: StoredMigration,
    pub api: Api,
    pub table: ImportTable,
    pub mapping: ColumnMapping,
    /// The rows, or what is wrong with the choice of columns.
    pub rows: Result<CheckedRows, String>,
}

#[derive(Template)]
#[template(path = "imports/preview.html")]
pub struct PreviewPage {
    layout: Layout,
    workspace: String,
    path: String,
    name: String,
    api: Api,
    /// The rows, which the next form sends again.
    table: String,
    hashed: &'static str,
    columns: Vec<ColumnRow>,
    columns_fault: Option<String>,
    rows: String,
    valid: String,
    /// The label of the button that imports the valid rows; `None` if there are none.
    import_label: Option<String>,
    invalid: String,
    invalid_rows: Vec<SkippedRow>,
    /// The number of invalid rows that are not listed.
    more_invalid: Option<String>,
    errors: FormErrors,
}

/// A column, and the fields to choose from.
struct ColumnRow {
    heading: String,
    options: Vec<SelectOption>,
}

pub async fn preview(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::CreateKey)?;
    let id = MigrationId::from(id);
    match split_form_errors(read_upload(&request, &id).await)? {
        Ok(upload) => {
            render_page(&PreviewPage::new(&request, upload, FormErrors::default()).await?)
        }
        Err(errors) => render_invalid_page(&build_page(&request, &id, errors).await?),
    }
}

/// Reads the rows of the form: those of an earlier step, of a file, or pasted ones. Full keys are replaced by hashes.
pub async fn read_upload(request: &WorkspaceRequest, id: &MigrationId) -> Result<Upload, Error> {
    let (context, form) = (&request.page_request.app.context, &request.page_request.form);
    let (stored, _) = migrations::get(context, &request.caller, id, 0).await?;
    let (mut fields, api_id) = (FieldReader::default(), chosen_api(form));
    let api = match apis::get(context, &request.caller, &ApiId::from(api_id)).await {
        Err(Error::NotFound(_)) => {
            fields.add_error("apiId", "select the API that the keys belong to");
            None
        }
        found => Some(found?),
    };
    let table = match (form.text("table"), form.text("file")) {
        ("", "") => parse_file(form.text("keys"), id.as_str(), api_id),
        ("", file) => parse_file(file, id.as_str(), api_id),
        (table, _) => parse_table(table),
    };
    let table = table.map_err(|fault| fields.add_error("file", fault)).ok();
    let (Some(api), Some(mut table)) = fields.finish((api, table))? else {
        return Err(Error::Internal("an import without errors has no rows".to_owned()));
    };
    let algorithm = stored.migration.algorithm;
    let mut mapping = ColumnMapping::from_form(form, &table.columns);
    let rows = match mapping.find_fault() {
        Some(fault) => Err(fault),
        None => {
            hash_keys(&mut table, &mut mapping, algorithm);
            Ok(check_rows(request, &api.id, algorithm, &table, &mapping).await?)
        }
    };
    Ok(Upload { stored, api, table, mapping, rows })
}

impl PreviewPage {
    pub async fn new(
        request: &WorkspaceRequest,
        upload: Upload,
        errors: FormErrors,
    ) -> Result<Self, Failure> {
        let Upload { stored, api, table, mapping, rows } = upload;
        let name = import_name(&stored.migration).to_owned();
        let (columns_fault, valid, mut invalid_rows) = match rows {
            Ok(rows) => (None, rows.valid.len(), rows.invalid),
            Err(fault) => (Some(fault), 0, Vec::new()),
        };
        let text = json!(table).to_string();
        if text.len() > TABLE_BYTES_MAX {
            let max = format_size(TABLE_BYTES_MAX);
            let fault = format!("the rows have more than {max} bytes; import fewer at a time");
            return Err(Error::invalid("file", fault).into());
        }
        let invalid = invalid_rows.len();
        invalid_rows.truncate(SKIPPED_SHOWN_MAX);
        Ok(Self {
            layout: Layout::for_workspace(request, Section::Imports, "Import preview")
                .await?
                .about(&name),
            workspace: request.membership.workspace_id.to_string(),
            path: request.workspace_path(&format!("/imports/{}", stored.migration.id)),
            name,
            api,
            columns: list_columns(&table, &mapping),
            columns_fault,
            hashed: hashed_text(table.hashed),
            rows: format_size(table.rows.len()),
            valid: format_size(valid),
            import_label: (valid > 0).then(|| format!("Import {}", format_keys(valid))),
            invalid: format_size(invalid),
            more_invalid: format_more(invalid, SKIPPED_SHOWN_MAX),
            invalid_rows,
            table: text,
            errors,
        })
    }
}

fn list_columns(table: &ImportTable, mapping: &ColumnMapping) -> Vec<ColumnRow> {
    let to_row = |(heading, chosen): (&String, &Option<_>)| ColumnRow {
        heading: if heading.is_empty() { "Without a heading".to_owned() } else { heading.clone() },
        options: FIELDS
            .iter()
            .map(|field| SelectOption {
                value: field.name.to_owned(),
                label: field.label.to_owned(),
                is_selected: *chosen == Some(field),
            })
            .collect(),
    };
    table.columns.iter().zip(&mapping.0).map(to_row).collect()
}

/// Returns where full keys were hashed.
fn hashed_text(hashed: HashedIn) -> &'static str {
    match hashed {
        HashedIn::Nowhere => "The file contains hashes, no full keys.",
        HashedIn::Browser => "Your browser hashed the full keys. They were not sent.",
        HashedIn::Server => "The server hashed the full keys. It stores only the hashes.",
    }
}

pub fn format_keys(count: usize) -> String {
    format_quantity(count.try_into().unwrap_or(i64::MAX), i64::MAX, "key")
}
