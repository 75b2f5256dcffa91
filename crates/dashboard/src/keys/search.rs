//! The search for keys, and for a full key.
//!
//! The text is submitted by POST, because it may be a full key, which must not get into a URL: neither into that of the
//! request nor into that of the next page. Only what cannot be a full key, or is in the name or an ID of a key that was found,
//! becomes a link to the list.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response};
use domain::keys::{find_deletion_by_key, whoami};
use domain::root_keys;
use foundation::error::Error;

use super::super::failure::Failure;
use super::super::form::Form;
use super::super::page_request::WorkspaceRequest;
use super::super::pagination::PageLinks;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::key_path;
use super::list::{KeyListPage, build_page, filter_query};

/// The length from which a text may be a full key.
const FULL_KEY_CHARS_MIN: usize = 20;
/// Makes htmx load another page.
const HX_REDIRECT: HeaderName = HeaderName::from_static("hx-redirect");
/// Makes htmx replace the address of the page.
const HX_REPLACE_URL: HeaderName = HeaderName::from_static("hx-replace-url");

/// Searches keys, or goes to the page of a full key.
pub async fn search(request: WorkspaceRequest) -> PageResult {
    if let Some(path) = find_full_key(&request, text(&request)).await? {
        return redirect_to(&path);
    }
    if !may_be_full_key(text(&request)) {
        let query = request.page_request.form.query_without(&["csrf"]).finish();
        return redirect_to(&request.workspace_path(&format!("/keys?{query}")));
    }
    let page = build_search_page(request).await?;
    match page.is_unknown {
        true => render_invalid_page(&page),
        false => render_page(&page),
    }
}

/// Searches keys while the user types. The address of the page becomes that of the list with the same search, for a reload, the
/// history and links.
pub async fn search_live(request: WorkspaceRequest) -> PageResult {
    if let Some(path) = find_full_key(&request, text(&request)).await? {
        return answer_live_search(&path);
    }
    let filter = filter_query(&request.page_request.form);
    let address = path_header(&request.workspace_path(&format!("/keys{filter}")))?;
    let mut answer = render_page(&build_search_page(request).await?)?;
    answer.headers_mut().insert(HX_REPLACE_URL, address);
    Ok(answer)
}

/// Makes htmx load the page of a full key, instead of showing results.
pub fn answer_live_search(path: &str) -> PageResult {
    let mut answer = Response::new(Body::empty());
    answer.headers_mut().insert(HX_REDIRECT, path_header(path)?);
    Ok(answer)
}

fn path_header(path: &str) -> Result<HeaderValue, Error> {
    let header = HeaderValue::from_str(path);
    header.map_err(|_| Error::Internal("the path is no header value".into()))
}

fn text(request: &WorkspaceRequest) -> &str {
    request.page_request.form.text("q").trim()
}

/// Returns the path of the page of a full key or root key, even if it is deleted or revoked.
pub async fn find_full_key(
    request: &WorkspaceRequest,
    key: &str,
) -> Result<Option<String>, Failure> {
    let (app, caller) = (&request.page_request.app, &request.caller);
    if key.is_empty() {
        return Ok(None);
    }
    let id = match whoami(&app.keys, caller, key).await {
        Ok(found) => Some(found.stored.key.id),
        Err(Error::NotFound(_)) => {
            let deletion = find_deletion_by_key(&app.context, caller, key).await?;
            deletion.map(|deletion| deletion.key.id)
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(id) = id {
        return Ok(Some(key_path(request, &id, "")));
    }
    let root_key = root_keys::find_by_secret(&app.context, caller, key).await?;
    Ok(root_key.map(|id| request.workspace_path(&format!("/root-keys/{id}"))))
}

/// Returns whether a text has the form of a full key: long, without spaces, of letters and digits, or of capital and small
/// letters, since every fortieth key has no digit. An e-mail address has not.
pub fn may_be_full_key(text: &str) -> bool {
    text.len() >= FULL_KEY_CHARS_MIN
        && text.chars().all(|c| c.is_ascii_graphic() && c != '@')
        && match text.contains(|c: char| c.is_ascii_digit()) {
            true => text.contains(|c: char| c.is_ascii_alphabetic()),
            false => {
                text.contains(|c: char| c.is_ascii_uppercase())
                    && text.contains(|c: char| c.is_ascii_lowercase())
            }
        }
}

/// Builds the list of what the form searches. It does not contain a text that may be a full key, unless a key that was
/// found has it in its name or IDs: an external ID may be a UUID, for example.
async fn build_search_page(mut request: WorkspaceRequest) -> Result<KeyListPage, Failure> {
    let query = request.page_request.form.query_without(&["csrf"]).finish();
    request.page_request.query = Form::parse(query.as_bytes());
    let mut page = build_page(&request).await?;
    let text = text(&request);
    if may_be_full_key(text) && !page.rows.iter().any(|row| row.contains(text)) {
        page.list.search = String::new();
        page.list.pages = PageLinks { first: None, next: None };
        page.is_unknown = page.rows.is_empty() && !page.is_deleted();
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_may_be_full_key_when_it_is_long_and_looks_random() {
        for key in [
            "live_3xTw9ZbV5yUq1NpLkR7a2C",
            "550e8400-e29b-41d4-a716-446655440000",
            "a234567890b234567890",
            "KQxrtjmQWMvNSabcdEFGHz",
        ] {
            assert!(may_be_full_key(key), "{key}");
        }
        for other in [
            "a234567890b23456789",
            "night job of the year 2026",
            "somebody2026@company.example",
            "a-name-without-any-digit",
            "12345678901234567890",
            "A_NAME_WITHOUT_SMALL_LETTERS",
            "ünïcode-name-of-2026-in-berlin",
        ] {
            assert!(!may_be_full_key(other), "{other}");
        }
    }
}
