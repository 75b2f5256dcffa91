//! Overrides, set and deleted.

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

/// An override in one line.
pub struct Row {
    pub identifier: String,
    pub is_pattern: bool,
    pub is_over: bool,
    pub rate: String,
    pub ends: Option<TimeLabel>,
    /// Where it is changed and deleted.
    pub change: String,
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

/// A limit as people say it: `10 per minute`.
pub fn rate(limit: i64, duration_ms: i64) -> String {
    let window = duration_field::words(duration_ms);
    match limit {
        0 => "nothing at all".to_owned(),
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

/// What an override has until something else is filled in.
const LIMIT: i64 = 100;
const DURATION_MS: i64 = 60_000;
const SECOND_MS: i64 = 1_000;

/// A moment as a form shows it, in UTC and to the second.
fn shown(at: Timestamp) -> String {
    let stamp = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
    stamp.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

/// The moment that a form tells, in unix milliseconds; what is none stays as it is, for the operation to say so.
/// Nothing: there is no end. A moment that was not touched keeps what is finer than a second.
fn expires(form: &Form, known: Option<&Override>) -> Option<Value> {
    let text = form.text("expires").trim();
    if text.is_empty() {
        return None;
    }
    let told = text.parse::<DateTime>().and_then(|at| at.to_zoned(TimeZone::UTC));
    let Ok(told) = told else { return Some(text.into()) };
    let told = told.timestamp().as_millisecond();
    let before = known.and_then(|known| known.expires_at);
    let before = before.filter(|at| at.0.div_euclid(SECOND_MS) == told.div_euclid(SECOND_MS));
    Some(before.map_or(told, |at| at.0).into())
}

async fn frame(
    asked: &WorkspaceRequest,
    namespace: Namespace,
    known: Option<Override>,
) -> Result<Edit, Failure> {
    let is_new = known.is_none();
    let title = if is_new { "New override" } else { "Change an override" };
    let (limit, duration_ms) =
        known.as_ref().map_or((LIMIT, DURATION_MS), |known| (known.limit, known.duration_ms));
    Ok(Edit {
        shell: Layout::of(asked, Section::Ratelimits, title).await?,
        path: path(asked, &namespace.id),
        namespace: namespace.name,
        is_new,
        limit: limit.to_string(),
        span: DurationField::of_ms(duration_ms),
        ends: known.as_ref().and_then(|known| known.expires_at).map(shown).unwrap_or_default(),
        identifier: known.map(|known| known.identifier).unwrap_or_default(),
        faults: FormErrors::default(),
    })
}

async fn edit(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require_on(Action::SetOverride, &id)?;
    let namespace = found(&asked, &id).await?;
    let known = match asked.visit.query.text("identifier") {
        "" => None,
        identifier => {
            Some(overrides::get_exact(&asked.visit.app, &asked.caller, &id, identifier).await?)
        }
    };
    page(&frame(&asked, namespace, known).await?)
}

async fn set(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require_on(Action::SetOverride, &id)?;
    let (app, form) = (&asked.visit.app, &asked.visit.form);
    let namespace = found(&asked, &id).await?;
    let identifier = form.text("identifier");
    let known = match form.text("known") {
        "" => None,
        _ => Some(overrides::get_exact(app, &asked.caller, &id, identifier).await?),
    };
    let span = DurationField::filled_in(form, "duration", 0);
    let mut request = json!({
        "namespace": id,
        "identifier": identifier,
        "limit": duration_field::number(form.text("limit")),
        "duration": span.ms(),
    });
    if let Some(expires) = expires(form, known.as_ref()) {
        request["expires"] = expires;
    }
    match split_form_errors(v2::call::<SetOverride>(app, &asked.caller, &request).await)? {
        Ok(_) => redirect_to(&format!("{}?notice=override-updated", path(&asked, &namespace.id))),
        Err(faults) => refused_page(&Edit {
            identifier: identifier.to_owned(),
            limit: form.text("limit").to_owned(),
            span,
            ends: form.text("expires").to_owned(),
            faults,
            ..frame(&asked, namespace, known).await?
        }),
    }
}

async fn ask_delete(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require_on(Action::DeleteOverride, &id)?;
    let namespace = found(&asked, &id).await?;
    let identifier = asked.visit.query.text("identifier");
    let known = overrides::get_exact(&asked.visit.app, &asked.caller, &id, identifier).await?;
    let path = path(&asked, &namespace.id);
    page(&Confirm {
        shell: Layout::of(&asked, Section::Ratelimits, "Delete an override").await?,
        question: format!("Delete the override for {}?", known.identifier),
        told: vec![format!(
            "It allows {}. Once it is gone, checks count with another override that matches, or with what they ask for.",
            rate(known.limit, known.duration_ms),
        )],
        act: format!("{path}/override/delete"),
        fields: vec![("identifier", known.identifier)],
        button: "Delete",
        back: path,
    })
}

async fn delete(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require_on(Action::DeleteOverride, &id)?;
    let request = json!({ "namespace": id, "identifier": asked.visit.form.text("identifier") });
    v2::call::<DeleteOverride>(&asked.visit.app, &asked.caller, &request).await?;
    let namespace = found(&asked, &id).await?;
    redirect_to(&format!("{}?notice=override-deleted", path(&asked, &namespace.id)))
}
