//! Creating, editing and deleting overrides.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use domain::bounds::{DURATION_MIN_MS, IDENTIFIER_MAX};
use domain::permission::Action;
use domain::ratelimits::overrides::{self, NewOverride};
use domain::wording;
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::model::{AllowedChars, Namespace, Override};

use super::super::confirm::ConfirmPage;
use super::super::duration_field::DurationField;
use super::super::expiry_field::{EXPIRY_OPTIONS, ExpiryFields};
use super::super::failure::Failure;
use super::super::field_reader::FieldReader;
use super::super::form::{Form, FormErrors, split_form_errors};
use super::super::format::TimeLabel;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::{load, namespace_path};

pub fn routes() -> Router {
    let path = "/dashboard/{workspace}/ratelimits/{namespace}/override";
    Router::new()
        .route(path, get(show_form).post(save))
        .route(&format!("{path}/delete"), get(confirm_delete).post(delete))
}

/// An override in one table row.
pub struct OverrideTableRow {
    pub identifier: String,
    pub is_pattern: bool,
    pub is_expired: bool,
    /// Whether its identifier begins or ends with a space.
    pub has_outer_spaces: bool,
    pub rate: String,
    pub expires: Option<TimeLabel>,
    /// The path of a simulated check of its identifier; `None` for a pattern.
    pub simulator_path: Option<String>,
    /// The path of its edit form.
    pub edit_path: String,
    /// The path of its delete page.
    pub delete_path: String,
}

impl OverrideTableRow {
    pub fn new(known: Override, path: &str, now: Timestamp) -> Self {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("identifier", &known.identifier)
            .finish();
        let is_pattern = known.identifier.contains('*');
        Self {
            is_pattern,
            has_outer_spaces: has_outer_spaces(&known.identifier),
            simulator_path: (!is_pattern).then(|| format!("{path}/simulator?{query}")),
            is_expired: !known.is_active(now),
            rate: format_rate(known.limit, known.duration_ms),
            expires: known.expires_at.map(|at| TimeLabel::new(at, now)),
            edit_path: format!("{path}/override?{query}"),
            delete_path: format!("{path}/override/delete?{query}"),
            identifier: known.identifier,
        }
    }
}

/// Returns whether an identifier begins or ends with a space, which a reader does not expect.
fn has_outer_spaces(identifier: &str) -> bool {
    identifier.trim() != identifier
}

/// Formats a limit and its window; a limit of 0 blocks everything.
pub fn format_rate(limit: i64, duration_ms: i64) -> String {
    match limit {
        0 => "Blocked".to_owned(),
        limit => wording::format_rate(limit, duration_ms),
    }
}

#[derive(Template)]
#[template(path = "ratelimits/override.html")]
struct OverrideFormPage {
    layout: Layout,
    namespace: String,
    path: String,
    is_new: bool,
    identifier: String,
    limit: String,
    window: DurationField,
    expires: ExpiryFields,
    errors: FormErrors,
}

/// The default limit of a new override.
const DEFAULT_LIMIT: i64 = 100;
/// The default window of a new override.
const DEFAULT_DURATION_MS: i64 = 60_000;
const SECOND_MS: i64 = 1_000;

/// Reads the expiry in a form. An unchanged time keeps its milliseconds, which the form does not show.
fn read_expiry(
    fields: &mut FieldReader,
    form: &Form,
    known: Option<&Override>,
    now: Timestamp,
) -> Option<Timestamp> {
    let read = ExpiryFields::from_form(form).read(fields, now)?;
    let before = known.and_then(|known| known.expires_at);
    let is_same = |at: &Timestamp| at.0.div_euclid(SECOND_MS) == read.0.div_euclid(SECOND_MS);
    Some(before.filter(is_same).unwrap_or(read))
}

/// Reads the override to set in a namespace. `known`: the override that is edited.
fn read_override(
    form: &Form,
    namespace: &str,
    known: Option<&Override>,
    now: Timestamp,
) -> Result<NewOverride, Error> {
    let mut fields = FieldReader::default();
    let (identifier, window) =
        (form.text("identifier"), DurationField::from_form(form, "duration", 0));
    let new = NewOverride {
        namespace: namespace.to_owned(),
        identifier: fields.text("identifier", identifier, 1..=IDENTIFIER_MAX, AllowedChars::NonNul),
        limit: fields.integer("limit", form.text("limit"), 0..=i64::MAX),
        duration_ms: fields.duration_ms("duration", &window, DURATION_MIN_MS..=i64::MAX),
        expires_at: read_expiry(&mut fields, form, known, now),
        is_async: false,
    };
    fields.finish(new)
}

async fn build_form(
    request: &WorkspaceRequest,
    namespace: Namespace,
    known: Option<Override>,
) -> Result<OverrideFormPage, Failure> {
    let is_new = known.is_none();
    let (title, object) = match &known {
        None => ("Create override", &namespace.name),
        Some(known) => ("Edit override", &known.identifier),
    };
    let (limit, duration_ms) = known
        .as_ref()
        .map_or((DEFAULT_LIMIT, DEFAULT_DURATION_MS), |known| (known.limit, known.duration_ms));
    Ok(OverrideFormPage {
        layout: Layout::for_workspace(request, Section::Ratelimits, title).await?.about(object),
        path: namespace_path(request, &namespace.id),
        namespace: namespace.name,
        is_new,
        limit: limit.to_string(),
        window: DurationField::from_ms(duration_ms),
        expires: ExpiryFields::from_time(known.as_ref().and_then(|known| known.expires_at)),
        identifier: known.map(|known| known.identifier).unwrap_or_default(),
        errors: FormErrors::default(),
    })
}

async fn show_form(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    request.caller.require_on(Action::SetOverride, &id)?;
    let namespace = load(&request, &id).await?;
    let query = &request.page_request.query;
    let get = |identifier| {
        overrides::get_exact(&request.page_request.app.context, &request.caller, &id, identifier)
    };
    // The identifier of an override that may not exist yet.
    let wanted = query.text("for");
    let known = match (query.text("identifier"), wanted) {
        ("", "") => None,
        ("", wanted) => match get(wanted).await {
            Ok(known) => Some(known),
            Err(Error::NotFound(_)) => None,
            Err(error) => return Err(error.into()),
        },
        (identifier, _) => Some(get(identifier).await?),
    };
    let is_new = known.is_none();
    let mut form = build_form(&request, namespace, known).await?;
    if is_new {
        wanted.clone_into(&mut form.identifier);
    }
    render_page(&form)
}

async fn save(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    request.caller.require_on(Action::SetOverride, &id)?;
    let (app, form) = (&request.page_request.app, &request.page_request.form);
    let namespace = load(&request, &id).await?;
    let identifier = form.text("identifier");
    let known = match form.text("known") {
        "" => None,
        _ => Some(overrides::get_exact(&app.context, &request.caller, &id, identifier).await?),
    };
    let set = match read_override(form, &id, known.as_ref(), app.context.clock.now()) {
        Ok(new) => overrides::set(&app.context, &request.caller, new).await,
        Err(error) => Err(error),
    };
    match split_form_errors(set)? {
        Ok(_) => {
            let is_odd = has_outer_spaces(identifier);
            let notice = if is_odd { "override-spaces" } else { "override-updated" };
            redirect_to(&format!("{}?notice={notice}", namespace_path(&request, &namespace.id)))
        }
        Err(errors) => render_invalid_page(&OverrideFormPage {
            identifier: identifier.to_owned(),
            limit: form.text("limit").to_owned(),
            window: DurationField::from_form(form, "duration", 0),
            expires: ExpiryFields::from_form(form),
            errors,
            ..build_form(&request, namespace, known).await?
        }),
    }
}

async fn confirm_delete(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require_on(Action::DeleteOverride, &id)?;
    let namespace = load(&request, &id).await?;
    let identifier = request.page_request.query.text("identifier");
    let known =
        overrides::get_exact(&request.page_request.app.context, &request.caller, &id, identifier)
            .await?;
    let path = namespace_path(&request, &namespace.id);
    render_page(&ConfirmPage {
        layout: Layout::for_workspace(&request, Section::Ratelimits, "Delete override")
            .await?
            .about(&known.identifier),
        question: format!("Delete the override for {}?", known.identifier),
        consequences: vec![format!(
            "Its limit is {}. After deletion, another matching override applies, or the limit in the request.",
            format_rate(known.limit, known.duration_ms),
        )],
        action_url: format!("{path}/override/delete"),
        fields: vec![("identifier", known.identifier)],
        button: "Delete",
        back_url: path,
        back_label: namespace.name,
    })
}

async fn delete(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    request.caller.require_on(Action::DeleteOverride, &id)?;
    let (context, form) = (&request.page_request.app.context, &request.page_request.form);
    overrides::delete(context, &request.caller, &id, form.text("identifier")).await?;
    let namespace = load(&request, &id).await?;
    redirect_to(&format!("{}?notice=override-deleted", namespace_path(&request, &namespace.id)))
}
