//! The pages of imports. An import is a set of keys that were issued elsewhere; the API calls it a migration.

mod check;
mod columns;
mod csv_keys;
mod hashing;
mod import;
mod rows;
mod table;
mod upload;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use columns::FIELDS;
pub use csv_keys::parse_csv_keys;
use domain::audit::{self, AuditEvent, AuditFilter, StoredEntry};
use domain::bounds::IMPORTED_KEYS_MAX;
use domain::migrations::{self, StoredMigration};
use domain::permission::Action;
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::MigrationId;
use foundation::model::{Algorithm, Migration};
use futures_util::TryFutureExt as _;
use serde_json::{Value, json};
use table::TABLE_BYTES_MAX;

use super::audit::AuditTableRow;
use super::failure::Failure;
use super::form::{Form, FormErrors, split_form_errors};
use super::format::{TimeLabel, curl_command, format_count, format_quantity, format_size};
use super::keys::{ApiOptions, load_api_options};
use super::layout::{Layout, Section, is_allowed};
use super::list_frame::ListFrame;
use super::one_time_form::create_once;
use super::page_request::WorkspaceRequest;
use super::pagination::paging_from_query;
use super::sort_link::{Direction, SortLink};
use super::{PageResult, form_page, redirect_to, render_invalid_page, render_page};

/// Limits the size of an import form, in bytes: the rows and other fields.
const IMPORT_FORM_BYTES_MAX: usize = TABLE_BYTES_MAX + 64 * 1024;
/// Limits how many pending keys are counted.
const PENDING_COUNTED_MAX: i64 = 10_000;
/// The number of audit entries on the page of an import.
const ENTRIES_SHOWN_MAX: usize = 10;

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/imports", get(list).post(create))
        .route("/dashboard/{workspace}/imports/new", get(show_create_form))
        .route("/dashboard/{workspace}/imports/{migration}", get(show).post(import::import_keys))
        .route(
            "/dashboard/{workspace}/imports/{migration}/preview",
            form_page(1, "").post(upload::preview),
        )
}

/// Returns the size limit of forms at a path, if the path imports keys.
pub fn form_bytes_max(path: &str) -> Option<usize> {
    let mut parts = path.strip_prefix("/dashboard/")?.split('/').skip(1);
    let brings_keys = parts.next() == Some("imports") && parts.next().is_some();
    brings_keys.then_some(IMPORT_FORM_BYTES_MAX)
}

#[derive(Template)]
#[template(path = "imports/list.html")]
struct ImportListPage {
    layout: Layout,
    list: ListFrame,
    rows: Vec<ImportTableRow>,
    may_import: bool,
}

#[derive(Template)]
#[template(path = "imports/new.html")]
struct NewImportPage<'a> {
    layout: Layout,
    workspace: String,
    name: &'a str,
    is_prefixed: bool,
    errors: FormErrors,
}

#[derive(Template)]
#[template(path = "imports/show.html")]
struct ImportPage<'a> {
    layout: Layout,
    workspace: String,
    path: String,
    import: ImportTableRow,
    pending: String,
    example: String,
    verify_example: String,
    apis: ApiOptions,
    /// The ID that was entered, if no API has it.
    other_api: &'a str,
    pasted_text: &'a str,
    /// The fields of a key and their headings as JSON, for the script that hashes keys in the browser.
    fields: String,
    rows_max: String,
    /// The latest audit entries of its imports.
    entries: Vec<ImportEntryRow>,
    has_more_entries: bool,
    errors: FormErrors,
    may_import: bool,
}

/// An import as displayed.
struct ImportTableRow {
    id: MigrationId,
    name: String,
    is_prefixed: bool,
    algorithm: &'static str,
    imported: String,
    created: TimeLabel,
    /// The path of the audit entries of its imports.
    history: String,
}

impl ImportTableRow {
    fn new(request: &WorkspaceRequest, stored: StoredMigration, now: Timestamp) -> Self {
        let migration = stored.migration;
        let history = form_urlencoded::Serializer::new(String::new())
            .append_pair("event", AuditEvent::KeysImported.as_str())
            .append_pair("about", migration.id.as_str())
            .finish();
        let name = import_name(&migration).to_owned();
        Self {
            id: migration.id,
            name,
            is_prefixed: migration.algorithm == Algorithm::PrefixedApiKey,
            algorithm: migration.algorithm.as_str(),
            imported: format_count(stored.imported_count, i64::MAX),
            created: TimeLabel::new(migration.created_at, now),
            history: request.workspace_path(&format!("/audit?{history}")),
        }
    }
}

/// An audit entry of an import as displayed.
struct ImportEntryRow {
    entry: AuditTableRow,
    /// How many keys were imported; `None` if the entry does not say it.
    keys: Option<String>,
}

impl ImportEntryRow {
    fn new(request: &WorkspaceRequest, entry: &StoredEntry, now: Timestamp) -> Self {
        Self { entry: AuditTableRow::new(request, entry, now), keys: format_imported_keys(entry) }
    }
}

/// Formats how many keys the audit entry of an import says were imported, if it says so.
pub fn format_imported_keys(entry: &StoredEntry) -> Option<String> {
    let after: Value = serde_json::from_str(entry.after.as_deref()?).ok()?;
    after["keys"].as_i64().map(|keys| format_quantity(keys, i64::MAX, "key"))
}

pub fn import_name(migration: &Migration) -> &str {
    migration.name.as_deref().unwrap_or("Unnamed")
}

async fn list(request: WorkspaceRequest) -> PageResult {
    let (context, caller) = (&request.page_request.app.context, &request.caller);
    let path = request.workspace_path("/imports");
    let sort = SortLink::new(&request, &path, Direction::Descending);
    let paging = paging_from_query(&request);
    let found = migrations::list_for_caller(context, caller, sort.key_order(), &paging).await?;
    let now = context.clock.now();
    let list = ListFrame::new(&request, "/imports", found.next_start.as_deref()).with_sort(sort);
    let row = |stored| ImportTableRow::new(&request, stored, now);
    render_page(&ImportListPage {
        layout: Layout::for_workspace(&request, Section::Imports, "Imports").await?,
        list: list.with_create_form(&request, "/imports/new", Action::CreateKey),
        rows: found.items.into_iter().map(row).collect(),
        may_import: is_allowed(&request, Action::CreateKey),
    })
}

async fn build_create_form(
    request: &WorkspaceRequest,
    errors: FormErrors,
) -> Result<NewImportPage<'_>, Failure> {
    let form = &request.page_request.form;
    Ok(NewImportPage {
        layout: Layout::for_workspace(request, Section::Imports, "Create import").await?,
        workspace: request.membership.workspace_id.to_string(),
        name: form.text("name"),
        is_prefixed: form.text("algorithm") == Algorithm::PrefixedApiKey.as_str(),
        errors,
    })
}

async fn show_create_form(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::CreateKey)?;
    render_page(&build_create_form(&request, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::CreateKey)?;
    let form = &request.page_request.form;
    let name = form.text("name").trim();
    let name = (!name.is_empty()).then(|| name.to_owned());
    let algorithm = form.text("algorithm").parse::<Algorithm>();
    let created = match algorithm {
        Ok(algorithm) => {
            let context = &request.page_request.app.context;
            let creation = migrations::create(context, &request.caller, algorithm, name);
            create_once(&request, creation.map_ok(|import| import.id)).await
        }
        Err(fault) => Err(Error::invalid("algorithm", format!("algorithm {fault}"))),
    };
    match split_form_errors(created)? {
        Ok(id) => {
            redirect_to(&request.workspace_path(&format!("/imports/{id}?notice=import-created")))
        }
        Err(errors) => render_invalid_page(&build_create_form(&request, errors).await?),
    }
}

/// Returns the ID of the API to import into: the one that was entered, or else the selected one.
fn chosen_api(form: &Form) -> &str {
    match form.text("other-api").trim() {
        "" => form.text("api"),
        entered => entered,
    }
}

/// Returns the latest audit entries of the imports into a migration, and whether there are more.
async fn list_entries(
    request: &WorkspaceRequest,
    id: &MigrationId,
    now: Timestamp,
) -> Result<(Vec<ImportEntryRow>, bool), Error> {
    let filter = AuditFilter {
        event: Some(AuditEvent::KeysImported.as_str().to_owned()),
        target_ids: vec![id.to_string()],
        rows_max: i64::try_from(ENTRIES_SHOWN_MAX + 1).unwrap_or(i64::MAX),
        ..AuditFilter::default()
    };
    let context = &request.page_request.app.context;
    let found = audit::list_for_caller(context, &request.caller, &filter).await?;
    let rows = found.iter().take(ENTRIES_SHOWN_MAX);
    let rows = rows.map(|entry| ImportEntryRow::new(request, entry, now)).collect();
    Ok((rows, found.len() > ENTRIES_SHOWN_MAX))
}

async fn build_page<'a>(
    request: &'a WorkspaceRequest,
    id: &MigrationId,
    errors: FormErrors,
) -> Result<ImportPage<'a>, Failure> {
    let (app, form) = (&request.page_request.app, &request.page_request.form);
    let (stored, waiting) =
        migrations::get(&app.context, &request.caller, id, PENDING_COUNTED_MAX).await?;
    let chosen = match chosen_api(form) {
        "" => request.page_request.query.text("api"),
        chosen => chosen,
    };
    // An API that does not exist is reported as an error and is not an option.
    let (apis, other_api) = match load_api_options(request, chosen).await {
        Err(Error::NotFound(_)) => (load_api_options(request, "").await?, form.text("other-api")),
        apis => (apis?, ""),
    };
    let api = apis.options.iter().find(|api| api.is_selected).or(apis.options.first());
    let example = json!({
        "migrationId": id,
        "apiId": api.map_or("api_…", |api| api.value.as_str()),
        "keys": [{ "hash": "…", "name": "a key", "externalId": "user_1" }],
    });
    let verify_example = json!({ "key": "…", "migrationId": id });
    let (base, now) = (&request.page_request.base_url, app.context.clock.now());
    let (entries, has_more_entries) = list_entries(request, id, now).await?;
    Ok(ImportPage {
        layout: Layout::for_workspace(request, Section::Imports, "Imports")
            .await?
            .about(import_name(&stored.migration)),
        workspace: request.membership.workspace_id.to_string(),
        path: request.workspace_path(&format!("/imports/{id}")),
        import: ImportTableRow::new(request, stored, now),
        pending: format_count(waiting, PENDING_COUNTED_MAX),
        example: curl_command(base, "keys.migrateKeys", &example.to_string()),
        verify_example: curl_command(base, "keys.verifyKey", &verify_example.to_string()),
        apis,
        other_api,
        pasted_text: form.text("keys"),
        fields: json!(FIELDS).to_string(),
        rows_max: format_size(IMPORTED_KEYS_MAX),
        entries,
        has_more_entries,
        errors,
        may_import: is_allowed(request, Action::CreateKey),
    })
}

async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    render_page(&build_page(&request, &MigrationId::from(id), FormErrors::default()).await?)
}

/// Formats how many rows are not shown, if any.
fn format_more(rows: usize, shown_max: usize) -> Option<String> {
    (rows > shown_max).then(|| format_size(rows - shown_max))
}
