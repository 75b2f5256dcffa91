//! Creating, editing and deleting overrides.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use foundation::clock::Timestamp;
use foundation::model::{Namespace, Override};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::super::confirm::Confirm;
use super::super::duration_field::{self, DurationField};
use super::super::failure::Failure;
use super::super::form::{Form, FormErrors, split_form_errors};
use super::super::format::{TimeLabel, count};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{Answer, page, redirect_to, refused_page};
use super::{found, path};
use crate::domain::permission::Action;
use crate::domain::ratelimits::overrides;
use crate::rpc::v2;
use crate::rpc::v2::ratelimit::delete_override::DeleteOverride;
use crate::rpc::v2::ratelimit::set_override::SetOverride;

pub fn routes() -> Router {
    let path = "/dashboard/{workspace}/ratelimits/{namespace}/override";
    Router::new()
        .route(path, get(edit).post(set))
        .route(&format!("{path}/delete"), get(ask_delete).post(delete))
}

/// An override in one table row.
pub struct Row {
    pub identifier: String,
    pub is_pattern: bool,
    pub is_over: bool,
    pub rate: String,
    pub ends: Option<TimeLabel>,
    /// The path of its edit form.
    pub change: String,
    /// The path of its delete page.
    pub delete: String,
}

impl Row {
    pub fn new(known: Override, path: &str, now: Timestamp) -> Self {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("identifier", &known.identifier)
            .finish();
        Self {
            is_pattern: known.identifier.contains('*'),
            is_over: !known.is_live(now),
            rate: rate(known.limit, known.duration_ms),
            ends: known.expires_at.map(|at| TimeLabel::new(at, now)),
            change: format!("{path}/override?{query}"),
            delete: format!("{path}/override/delete?{query}"),
            identifier: known.identifier,
        }
    }
}

/// Formats a limit: `10 per minute`.
pub fn rate(limit: i64, duration_ms: i64) -> String {
    let window = duration_field::words(duration_ms);
    match limit {
        0 => "Blocked".to_owned(),
        limit => format!("{} per {}", count(limit, i64::MAX), window.trim_start_matches("1 ")),
    }
}

#[derive(Template)]
#[template(path = "ratelimits/override.html")]
struct Edit {
    shell: Layout,
    namespace: String,
    path: String,
    is_new: bool,
    identifier: String,
    limit: String,
    span: DurationField,
    ends: String,
    faults: FormErrors,
}

/// The default limit of a new override.
const LIMIT: i64 = 100;
/// The default window of a new override.
const DURATION_MS: i64 = 60_000;
const SECOND_MS: i64 = 1_000;

/// Formats a time to the second, in UTC, for a form field.
fn shown(at: Timestamp) -> String {
    let stamp = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
    stamp.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

/// Parses the expiry in a form, in Unix milliseconds. Text that is not a time is returned unchanged: the operation
/// rejects it. `None`: no expiry. An unchanged time keeps its milliseconds, which the form does not show.
fn expires(form: &Form, known: Option<&Override>) -> Option<Value> {
    let text = form.text("expires").trim();
    if text.is_empty() {
        return None;
    }
    let parsed = text.parse::<DateTime>().and_then(|at| at.to_zoned(TimeZone::UTC));
    let Ok(parsed) = parsed else { return Some(text.into()) };
    let parsed = parsed.timestamp().as_millisecond();
    let before = known.and_then(|known| known.expires_at);
    let before = before.filter(|at| at.0.div_euclid(SECOND_MS) == parsed.div_euclid(SECOND_MS));
    Some(before.map_or(parsed, |at| at.0).into())
}

async fn frame(
    request: &WorkspaceRequest,
    namespace: Namespace,
    known: Option<Override>,
) -> Result<Edit, Failure> {
    let is_new = known.is_none();
    let title = if is_new { "New override" } else { "Edit override" };
    let (limit, duration_ms) =
        known.as_ref().map_or((LIMIT, DURATION_MS), |known| (known.limit, known.duration_ms));
    Ok(Edit {
        shell: Layout::of(request, Section::Ratelimits, title).await?,
        path: path(request, &namespace.id),
        namespace: namespace.name,
        is_new,
        limit: limit.to_string(),
        span: DurationField::of_ms(duration_ms),
        ends: known.as_ref().and_then(|known| known.expires_at).map(shown).unwrap_or_default(),
        identifier: known.map(|known| known.identifier).unwrap_or_default(),
        faults: FormErrors::default(),
    })
}

async fn edit(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require_on(Action::SetOverride, &id)?;
    let namespace = found(&request, &id).await?;
    let known = match request.visit.query.text("identifier") {
        "" => None,
        identifier => {
            Some(overrides::get_exact(&request.visit.app, &request.caller, &id, identifier).await?)
        }
    };
    page(&frame(&request, namespace, known).await?)
}

async fn set(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require_on(Action::SetOverride, &id)?;
    let (app, form) = (&request.visit.app, &request.visit.form);
    let namespace = found(&request, &id).await?;
    let identifier = form.text("identifier");
    let known = match form.text("known") {
        "" => None,
        _ => Some(overrides::get_exact(app, &request.caller, &id, identifier).await?),
    };
    let span = DurationField::filled_in(form, "duration", 0);
    let mut body = json!({
        "namespace": id,
        "identifier": identifier,
        "limit": duration_field::number(form.text("limit")),
        "duration": span.ms(),
    });
    if let Some(expires) = expires(form, known.as_ref()) {
        body["expires"] = expires;
    }
    match split_form_errors(v2::call::<SetOverride>(app, &request.caller, &body).await)? {
        Ok(_) => redirect_to(&format!("{}?notice=override-updated", path(&request, &namespace.id))),
        Err(faults) => refused_page(&Edit {
            identifier: identifier.to_owned(),
            limit: form.text("limit").to_owned(),
            span,
            ends: form.text("expires").to_owned(),
            faults,
            ..frame(&request, namespace, known).await?
        }),
    }
}

async fn ask_delete(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require_on(Action::DeleteOverride, &id)?;
    let namespace = found(&request, &id).await?;
    let identifier = request.visit.query.text("identifier");
    let known = overrides::get_exact(&request.visit.app, &request.caller, &id, identifier).await?;
    let path = path(&request, &namespace.id);
    page(&Confirm {
        shell: Layout::of(&request, Section::Ratelimits, "Delete override").await?,
        question: format!("Delete the override for {}?", known.identifier),
        told: vec![format!(
            "Its limit is {}. After deletion, another matching override applies, or the limit in the request.",
            rate(known.limit, known.duration_ms),
        )],
        act: format!("{path}/override/delete"),
        fields: vec![("identifier", known.identifier)],
        button: "Delete",
        back: path,
    })
}

async fn delete(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require_on(Action::DeleteOverride, &id)?;
    let body = json!({ "namespace": id, "identifier": request.visit.form.text("identifier") });
    v2::call::<DeleteOverride>(&request.visit.app, &request.caller, &body).await?;
    let namespace = found(&request, &id).await?;
    redirect_to(&format!("{}?notice=override-deleted", path(&request, &namespace.id)))
}
