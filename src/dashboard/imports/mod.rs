//! The pages of imports. An import is a set of keys that were issued elsewhere; the API calls it a migration.

mod pasted;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use foundation::clock::Timestamp;
use foundation::error::{Error, Subject};
use foundation::id::{KeyId, MigrationId};
use foundation::model::Algorithm;
use pasted::PASTED_BYTES_MAX;
use serde_json::json;

use super::failure::Failure;
use super::form::{FormErrors, split_form_errors};
use super::format::{TimeLabel, count, curl};
use super::keys::{Choice, choices};
use super::layout::{Layout, Section, may};
use super::page_request::WorkspaceRequest;
use super::pagination::{Pages, paging};
use super::{Answer, page, redirect_to, refused_page};
use crate::domain::keys::ImportRejection;
use crate::domain::migrations::{self, StoredMigration};
use crate::domain::permission::Action;
use crate::rpc::v2::call;
use crate::rpc::v2::keys::migrate_keys::MigrateKeys;

/// Limits the size of an import form, in bytes. URL encoding may triple each pasted byte; other fields need some more.
const FORM_BYTES_MAX: usize = 3 * PASTED_BYTES_MAX + 64 * 1024;
/// The number of imported keys that are listed.
const TAKEN_SHOWN: usize = 100;
/// The number of rejected keys that are listed.
const REFUSED_SHOWN: usize = 1_000;
/// Limits how many pending keys are counted.
const WAITING_MAX: i64 = 10_000;

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/imports", get(list).post(create))
        .route("/dashboard/{workspace}/imports/new", get(new))
        .route("/dashboard/{workspace}/imports/{migration}", get(show).post(take_in))
}

/// Returns the size limit of forms at a path, if the path imports keys.
pub fn form_bytes_max(path: &str) -> Option<usize> {
    let mut parts = path.strip_prefix("/dashboard/")?.split('/').skip(1);
    let brings_keys = parts.next() == Some("imports") && parts.next().is_some();
    brings_keys.then_some(FORM_BYTES_MAX)
}

#[derive(Template)]
#[template(path = "imports/list.html")]
struct List<'a> {
    shell: Layout,
    workspace: String,
    path: String,
    rows: Vec<Row>,
    search: &'a str,
    pages: Pages,
    may_create: bool,
}

#[derive(Template)]
#[template(path = "imports/new.html")]
struct New<'a> {
    shell: Layout,
    workspace: String,
    name: &'a str,
    is_prefixed: bool,
    faults: FormErrors,
}

#[derive(Template)]
#[template(path = "imports/show.html")]
struct Show<'a> {
    shell: Layout,
    workspace: String,
    path: String,
    import: Row,
    waiting: String,
    example: String,
    verify_example: String,
    apis: Vec<Choice>,
    pasted: &'a str,
    faults: FormErrors,
    may_take_in: bool,
}

#[derive(Template)]
#[template(path = "imports/imported.html")]
struct Taken {
    shell: Layout,
    workspace: String,
    path: String,
    name: String,
    taken: usize,
    refused: usize,
    taken_rows: Vec<(String, KeyId)>,
    refused_rows: Vec<(String, &'static str)>,
}

/// An import as displayed.
struct Row {
    id: MigrationId,
    name: String,
    is_prefixed: bool,
    algorithm: &'static str,
    came: String,
    created: TimeLabel,
}

impl Row {
    fn new(stored: StoredMigration, now: Timestamp) -> Self {
        let migration = stored.migration;
        Self {
            id: migration.id,
            name: migration.name.unwrap_or_else(|| "Unnamed".into()),
            is_prefixed: migration.algorithm == Algorithm::PrefixedApiKey,
            algorithm: migration.algorithm.as_str(),
            came: count(stored.came, i64::MAX),
            created: TimeLabel::new(migration.created_at, now),
        }
    }
}

async fn list(request: WorkspaceRequest) -> Answer {
    let app = &request.visit.app;
    let path = request.path("/imports");
    let found = migrations::page(app, &request.caller, &paging(&request)).await?;
    let now = app.clock.now();
    page(&List {
        shell: Layout::of(&request, Section::Imports, "Imports").await?,
        workspace: request.membership.workspace_id.to_string(),
        pages: Pages::new(&request, &path, found.next.as_deref()),
        path,
        rows: found.items.into_iter().map(|stored| Row::new(stored, now)).collect(),
        search: request.visit.query.text("q"),
        may_create: may(&request, Action::CreateKey),
    })
}

async fn filled_in(request: &WorkspaceRequest, faults: FormErrors) -> Result<New<'_>, Failure> {
    let form = &request.visit.form;
    Ok(New {
        shell: Layout::of(request, Section::Imports, "New import").await?,
        workspace: request.membership.workspace_id.to_string(),
        name: form.text("name"),
        is_prefixed: form.text("algorithm") == Algorithm::PrefixedApiKey.as_str(),
        faults,
    })
}

async fn new(request: WorkspaceRequest) -> Answer {
    request.caller.require(Action::CreateKey)?;
    page(&filled_in(&request, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> Answer {
    request.caller.require(Action::CreateKey)?;
    let form = &request.visit.form;
    let name = form.text("name").trim();
    let name = (!name.is_empty()).then(|| name.to_owned());
    let algorithm = form.text("algorithm").parse::<Algorithm>();
    let created = match algorithm {
        Ok(algorithm) => {
            migrations::make(&request.visit.app, &request.caller, algorithm, name).await
        }
        Err(fault) => Err(Error::invalid("algorithm", format!("algorithm {fault}"))),
    };
    match split_form_errors(created)? {
        Ok(import) => {
            redirect_to(&request.path(&format!("/imports/{}?notice=import-created", import.id)))
        }
        Err(faults) => refused_page(&filled_in(&request, faults).await?),
    }
}

async fn showing<'a>(
    request: &'a WorkspaceRequest,
    id: &MigrationId,
    faults: FormErrors,
) -> Result<Show<'a>, Failure> {
    let (app, form) = (&request.visit.app, &request.visit.form);
    let (stored, waiting) = migrations::get(app, &request.caller, id, WAITING_MAX).await?;
    let chosen = match form.text("api") {
        "" => request.visit.query.text("api"),
        chosen => chosen,
    };
    // An API that does not exist is reported as an error and is not an option.
    let apis = match choices(request, chosen).await {
        Err(Error::NotFound(_)) => choices(request, "").await?,
        apis => apis?,
    };
    let api = apis.iter().find(|api| api.is_chosen).or(apis.first());
    let example = json!({
        "migrationId": id,
        "apiId": api.map_or("api_…", |api| api.value.as_str()),
        "keys": [{ "hash": "…", "name": "a key", "externalId": "user_1" }],
    });
    let verify_example = json!({ "key": "…", "migrationId": id });
    let base = &request.visit.base_url;
    Ok(Show {
        shell: Layout::of(request, Section::Imports, "Import").await?,
        workspace: request.membership.workspace_id.to_string(),
        path: request.path(&format!("/imports/{id}")),
        import: Row::new(stored, app.clock.now()),
        waiting: count(waiting, WAITING_MAX),
        example: curl(base, "keys.migrateKeys", &example.to_string()),
        verify_example: curl(base, "keys.verifyKey", &verify_example.to_string()),
        apis,
        pasted: form.text("keys"),
        faults,
        may_take_in: may(request, Action::CreateKey),
    })
}

async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    page(&showing(&request, &MigrationId::from(id), FormErrors::default()).await?)
}

async fn take_in(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require(Action::CreateKey)?;
    let (app, caller, form) = (&request.visit.app, &request.caller, &request.visit.form);
    let id = MigrationId::from(id);
    let api = form.text("api");
    let body = pasted::keys(form.text("keys"), id.as_str(), api)
        .map(|keys| json!({ "migrationId": id, "apiId": api, "keys": keys }))
        .map_err(|fault| Error::invalid("keys", fault));
    let done = match body {
        Ok(body) => call::<MigrateKeys>(app, caller, &body).await.map_err(without_api),
        Err(error) => Err(error),
    };
    let outcome = match split_form_errors(done)? {
        Ok(outcome) => outcome,
        Err(faults) => return refused_page(&showing(&request, &id, faults).await?),
    };
    let (stored, _) = migrations::get(app, caller, &id, 0).await?;
    let rows = outcome.refused.iter().take(REFUSED_SHOWN);
    page(&Taken {
        shell: Layout::of(&request, Section::Imports, "Keys imported").await?,
        workspace: request.membership.workspace_id.to_string(),
        path: request.path(&format!("/imports/{id}")),
        name: stored.migration.name.unwrap_or_else(|| "Unnamed".into()),
        taken: outcome.migrated.len(),
        refused: outcome.refused.len(),
        taken_rows: outcome
            .migrated
            .iter()
            .take(TAKEN_SHOWN)
            .map(|taken| (start(&taken.hash), taken.key_id.clone()))
            .collect(),
        refused_rows: rows.map(|(hash, why)| (start(hash), rejection_text(*why))).collect(),
    })
}

/// Converts "not found" of the API into an error of the form field that names it.
fn without_api(error: Error) -> Error {
    match error {
        Error::NotFound(subjects) if matches!(subjects[..], [Subject::Api(_)]) => {
            Error::invalid("apiId", "select the API for the keys")
        }
        other => other,
    }
}

fn rejection_text(why: ImportRejection) -> &'static str {
    match why {
        ImportRejection::Known => "Already imported",
        ImportRejection::Twice => "Duplicate in this import",
    }
}

/// Returns the first characters of a hash, enough to identify it.
fn start(hash: &str) -> String {
    hash.chars().take(12).collect()
}
