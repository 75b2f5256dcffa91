//! The import of the rows of a file, and its summary.

use std::collections::HashMap;

use askama::Template;
use axum::extract::Path;
use domain::audit::{self, AuditEvent, AuditFilter};
use domain::form_results;
use domain::keys::{self, MigrationResult};
use domain::permission::Action;
use foundation::error::Error;
use foundation::id::{ApiId, KeyId, MigrationId};

use super::super::audit::may_undo;
use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::format::format_size;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::check::{CheckedRows, RowLabel, SkippedRow, rejection_text, skipped_csv};
use super::upload::{PreviewPage, SKIPPED_SHOWN_MAX, Upload, format_keys, read_upload};
use super::{build_page, format_more, import_name};

/// The number of imported keys that are listed.
const IMPORTED_SHOWN_MAX: usize = 100;

#[derive(Template)]
#[template(path = "imports/imported.html")]
struct ImportedPage {
    layout: Layout,
    workspace: String,
    path: String,
    api: ApiId,
    name: String,
    imported: String,
    imported_rows: Vec<(String, KeyId)>,
    /// The number of imported keys that are not listed.
    more_imported: Option<String>,
    skipped: String,
    skipped_rows: Vec<SkippedRow>,
    /// The number of skipped rows that are not listed.
    more_skipped: Option<String>,
    /// All skipped rows, to download.
    csv: String,
    /// The page of the audit entry, which undoes the import; `None` if no key was imported.
    entry: Option<String>,
    may_undo: bool,
}

pub async fn import_keys(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::CreateKey)?;
    let (app, caller) = (&request.page_request.app, &request.caller);
    let id = MigrationId::from(id);
    let repeated = request.workspace_path(&format!("/imports/{id}?notice=import-repeated"));
    if form_results::find_created_id(&app.context, caller).await?.is_some() {
        return redirect_to(&repeated);
    }
    let mut upload = match split_form_errors(read_upload(&request, &id).await)? {
        Ok(upload) => upload,
        Err(errors) => return render_invalid_page(&build_page(&request, &id, errors).await?),
    };
    let skips_invalid = request.page_request.form.text("skip-invalid") == "yes";
    let may_import =
        |rows: &CheckedRows| !rows.valid.is_empty() && (rows.invalid.is_empty() || skips_invalid);
    let Some(CheckedRows { valid, invalid }) = take_if(&mut upload, may_import) else {
        let page = PreviewPage::new(&request, upload, FormErrors::default()).await?;
        return render_invalid_page(&page);
    };
    let labels: HashMap<_, _> =
        valid.iter().map(|(label, key)| (key.hash.clone(), label.clone())).collect();
    let keys = valid.into_iter().map(|(_, key)| key).collect();
    let skipped = invalid.len();
    let imported = keys::migrate(&app.context, caller, &id, &upload.api.id, keys, skipped).await;
    if matches!(imported, Err(Error::IdempotencyConflict)) {
        return redirect_to(&repeated);
    }
    match split_form_errors(imported)? {
        Ok(result) => {
            let page = ImportedPage::new(&request, &upload, result, labels, invalid).await?;
            render_page(&page)
        }
        Err(errors) => render_invalid_page(&build_page(&request, &id, errors).await?),
    }
}

/// Takes the rows of an upload if they are checked and meet a condition.
fn take_if(
    upload: &mut Upload,
    condition: impl FnOnce(&CheckedRows) -> bool,
) -> Option<CheckedRows> {
    let rows = upload.rows.as_mut().ok().filter(|rows| condition(rows))?;
    let (valid, invalid) = (std::mem::take(&mut rows.valid), std::mem::take(&mut rows.invalid));
    Some(CheckedRows { valid, invalid })
}

impl ImportedPage {
    async fn new(
        request: &WorkspaceRequest,
        upload: &Upload,
        result: MigrationResult,
        mut labels: HashMap<String, RowLabel>,
        mut skipped: Vec<SkippedRow>,
    ) -> Result<Self, Failure> {
        let migration = &upload.stored.migration;
        let entry = find_entry_path(request, &migration.id, &upload.api.id, &result).await?;
        // Since the rows were checked, another import may have had the same keys.
        skipped.extend(result.failed.into_iter().map(|(hash, why)| SkippedRow {
            label: labels.remove(&hash).unwrap_or_default(),
            faults: vec![rejection_text(why).to_owned()],
        }));
        skipped.sort_by_key(|row| row.label.number);
        let (imported, skipped_count) = (result.migrated.len(), skipped.len());
        let csv = skipped_csv(&skipped)?;
        skipped.truncate(SKIPPED_SHOWN_MAX);
        let to_row = |(hash, id): &(String, KeyId)| {
            let title = labels.get(hash).map_or("", RowLabel::title);
            (if title.is_empty() { id.to_string() } else { title.to_owned() }, id.clone())
        };
        Ok(Self {
            layout: Layout::for_workspace(request, Section::Imports, "Keys imported")
                .await?
                .about(import_name(migration)),
            workspace: request.membership.workspace_id.to_string(),
            path: request.workspace_path(&format!("/imports/{}", migration.id)),
            api: upload.api.id.clone(),
            name: import_name(migration).to_owned(),
            imported: format_keys(imported),
            imported_rows: result.migrated.iter().take(IMPORTED_SHOWN_MAX).map(to_row).collect(),
            more_imported: format_more(imported, IMPORTED_SHOWN_MAX),
            skipped: format_size(skipped_count),
            more_skipped: format_more(skipped_count, SKIPPED_SHOWN_MAX),
            skipped_rows: skipped,
            csv,
            entry,
            may_undo: may_undo(request),
        })
    }
}

/// Returns the path of the audit entry of an import. Those into other APIs may have the same time.
async fn find_entry_path(
    request: &WorkspaceRequest,
    migration: &MigrationId,
    api: &ApiId,
    result: &MigrationResult,
) -> Result<Option<String>, Error> {
    let filter = AuditFilter {
        event: Some(AuditEvent::KeysImported.as_str().to_owned()),
        target_ids: vec![migration.to_string(), api.to_string()],
        start_at: Some(result.imported_at),
        end_at: Some(result.imported_at.plus_ms(1)),
        rows_max: 1,
        ..AuditFilter::default()
    };
    let context = &request.page_request.app.context;
    let found = audit::list_for_caller(context, &request.caller, &filter).await?;
    Ok(found.first().map(|entry| request.workspace_path(&format!("/audit/{}", entry.id))))
}
