//! Trying a request: what a policy decides about it, and why. Nothing is counted.

use std::net::IpAddr;

use api::gateway::{AnswerPreview, ForwardedRequest, preview};
use askama::Template;
use axum::extract::Path;
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use domain::caller::ClientInfo;
use domain::gateways::{self, ActivePolicy};
use foundation::error::Error;
use foundation::model::{KeySource, is_token};

use super::super::failure::Failure;
use super::super::field_reader::FieldReader;
use super::super::form::{Form, FormErrors, split_form_errors};
use super::super::format::format_size;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, render_invalid_page, render_page};
use super::fields::split_lines;
use super::outcome::OutcomeView;
use super::policy_path;

/// The length of the path with the query.
const TARGET_MAX: usize = 4096;
/// The length of the key, which may be longer than any key.
const KEY_MAX: usize = 2048;
/// The number of headers, and the length of each.
const HEADERS_MAX: usize = 50;
const HEADER_MAX: usize = 4096;

#[derive(Template)]
#[template(path = "gateways/try.html")]
struct TryPage {
    layout: Layout,
    path: String,
    name: String,
    fields: TryForm,
    /// The places where the policy reads keys, and whether each is selected.
    sources: Vec<(String, bool)>,
    errors: FormErrors,
    /// The result; `None` before the form is submitted.
    outcome: Option<OutcomeView>,
}

/// The fields of the form. The key is not shown again, and is in no URL.
struct TryForm {
    method: String,
    target: String,
    source: String,
    headers: String,
    address: String,
}

/// The request to try.
struct TriedRequest {
    method: String,
    target: String,
    headers: HeaderMap,
    client: ClientInfo,
}

impl TryForm {
    fn from_form(form: &Form) -> Self {
        let or = |field: &str, default: &str| match form.text(field).trim() {
            "" => default.to_owned(),
            text => text.to_owned(),
        };
        Self {
            method: or("method", "GET"),
            target: or("target", "/"),
            source: form.text("source").to_owned(),
            headers: form.text("headers").replace("\r\n", "\n"),
            address: form.text("address").trim().to_owned(),
        }
    }

    /// Reads the request with this key.
    fn read(&self, policy: &ActivePolicy, key: &str) -> Result<TriedRequest, Error> {
        let mut fields = FieldReader::default();
        if !is_token(&self.method) {
            fields.reject("method", "must be an HTTP method, such as GET");
        }
        let is_target = self.target.starts_with('/')
            && self.target.len() <= TARGET_MAX
            && self.target.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_target {
            let rule = format!(
                "must begin with / and have at most {} visible ASCII characters without spaces, as in a URL",
                format_size(TARGET_MAX)
            );
            fields.reject("path", rule);
        }
        let address = match self.address.as_str() {
            "" => None,
            text => text.parse::<IpAddr>().ok().or_else(|| {
                fields.reject("address", "must be an IPv4 or IPv6 address");
                None
            }),
        };
        let mut request = TriedRequest {
            method: self.method.clone(),
            target: self.target.clone(),
            headers: read_headers(&mut fields, &self.headers),
            client: ClientInfo { address, user_agent: None },
        };
        let sources = &policy.policy.config.key_from;
        let chosen = sources.iter().find(|source| source.to_string() == self.source);
        if !key.is_empty() {
            match chosen.or(sources.first()) {
                Some(source) if key.len() <= KEY_MAX => {
                    if request.add_key(source, key).is_none() {
                        fields.add_error("key", "the key must have only visible ASCII characters");
                    }
                }
                Some(_) | None => {
                    fields.add_error(
                        "key",
                        format!("the key must have at most {} characters", format_size(KEY_MAX)),
                    );
                }
            }
        }
        fields.finish(request)
    }
}

/// Reads a header per line.
fn read_headers(fields: &mut FieldReader, text: &str) -> HeaderMap {
    let lines = split_lines(text);
    fields.check_count("headers", lines.len(), HEADERS_MAX);
    let mut headers = HeaderMap::new();
    for (at, line) in lines.iter().take(HEADERS_MAX).enumerate() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let name = HeaderName::try_from(name.trim());
        let value = HeaderValue::try_from(value.trim());
        match (name, value) {
            (Ok(name), Ok(value)) if line.contains(':') && line.len() <= HEADER_MAX => {
                headers.append(name, value);
            }
            _ => {
                let max = format_size(HEADER_MAX);
                let rule = format!("must be a header of at most {max} bytes, such as Name: value");
                fields.reject(&format!("headers[{at}]"), rule);
            }
        }
    }
    headers
}

impl TriedRequest {
    /// Adds a key where this source reads it. `None`: the key does not fit there.
    fn add_key(&mut self, source: &KeySource, key: &str) -> Option<()> {
        let is_visible = key.bytes().all(|byte| byte.is_ascii_graphic());
        let value = |text: String| HeaderValue::try_from(text).ok().filter(|_| is_visible);
        match source {
            KeySource::Bearer => {
                self.headers.insert(AUTHORIZATION, value(format!("Bearer {key}"))?);
            }
            KeySource::Header(name) => {
                let name = HeaderName::try_from(name.as_str()).ok()?;
                self.headers.insert(name, value(key.to_owned())?);
            }
            KeySource::Cookie(name) => {
                self.headers.append(COOKIE, value(format!("{name}={key}"))?);
            }
            KeySource::Query(name) => {
                let mut query = form_urlencoded::Serializer::new(String::new());
                let query = query.append_pair(name, key).finish();
                let separator = if self.target.contains('?') { '&' } else { '?' };
                self.target = format!("{}{separator}{query}", self.target);
            }
        }
        Some(())
    }
}

async fn build_page(
    request: &WorkspaceRequest,
    policy: &ActivePolicy,
    errors: FormErrors,
) -> Result<TryPage, Failure> {
    let fields = TryForm::from_form(&request.page_request.form);
    let source = |source: &KeySource| {
        let text = source.to_string();
        let is_selected = text == fields.source;
        (text, is_selected)
    };
    Ok(TryPage {
        layout: Layout::for_workspace(request, Section::Gateways, "Try a request")
            .await?
            .about(&policy.policy.name),
        path: policy_path(request, &policy.policy.id),
        name: policy.policy.name.clone(),
        sources: policy.policy.config.key_from.iter().map(source).collect(),
        fields,
        errors,
        outcome: None,
    })
}

pub async fn show_form(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    let app = &request.page_request.app;
    let found = gateways::find_for_preview(&app.gateways, &request.caller, &named).await?;
    render_page(&build_page(&request, &found.value, FormErrors::default()).await?)
}

pub async fn try_request(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    let app = &request.page_request.app;
    let found = gateways::find_for_preview(&app.gateways, &request.caller, &named).await?;
    let policy = &found.value;
    let mut page = build_page(&request, policy, FormErrors::default()).await?;
    let key = request.page_request.form.text("key").trim();
    match split_form_errors(page.fields.read(policy, key))? {
        Ok(tried) => {
            let TriedRequest { method, target, headers, client } = tried;
            let forwarded = ForwardedRequest::new(&headers, &method, &target);
            let AnswerPreview { judgement, answer, request_id } =
                preview(app, policy, &forwarded, client).await;
            match judgement {
                // A state of the server, not of the policy.
                Err(error) if error.code().status() >= 500 => return Err(error.into()),
                judgement => {
                    let now = app.context.clock.now();
                    let outcome =
                        OutcomeView::new(&request, policy, &target, judgement, answer, now);
                    page.outcome = Some(outcome.without_request_id(&request_id));
                }
            }
            render_page(&page)
        }
        Err(errors) => {
            page.errors = errors;
            render_invalid_page(&page)
        }
    }
}
