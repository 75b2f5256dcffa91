//! The workspace that the browser visited last, in a cookie. It is the start page of the dashboard, and that of the
//! navigation on pages outside of a workspace.

use axum::http::Method;
use axum::http::request::Parts;
use domain::users;
use foundation::id::WorkspaceId;
use foundation::model::Membership;

use super::page_request::PageRequest;
use super::{PageResult, overview, redirect_to};

/// Returns the workspace to remember if the page exists; `None` if it is of no workspace, or of the remembered one.
/// What a page loads by itself, such as live logs in another tab, is no visit.
pub fn find_visited(request: &PageRequest, head: &Parts) -> Option<WorkspaceId> {
    let id = head.uri.path().split('/').nth(2).filter(|id| is_workspace_id(id))?;
    let visited = WorkspaceId::from(id);
    let is_new = request.last_workspace.as_ref() != Some(&visited);
    let is_visit = request.method == Method::GET
        && request.session.is_some()
        && !head.headers.contains_key("hx-request");
    (is_new && is_visit).then_some(visited)
}

/// Returns whether a text may be the ID of a workspace, and therefore the value of a cookie.
fn is_workspace_id(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with("ws_") && text.len() <= 64 && text.chars().all(is_part)
}

/// Returns the position of the workspace that was visited last; `None` if the user can no longer visit it.
pub fn find_position(request: &PageRequest, memberships: &[Membership]) -> Option<usize> {
    let last = request.last_workspace.as_ref()?;
    memberships.iter().position(|found| found.workspace_enabled && found.workspace_id == *last)
}

/// Redirects a user to the workspace that was visited last, or else to the first one.
pub async fn redirect_home(request: PageRequest) -> PageResult {
    let known = request.require_session()?;
    let memberships = users::list_memberships(&request.app.context, &known.user).await?;
    match find_position(&request, &memberships).and_then(|at| memberships.get(at)) {
        Some(last) => redirect_to(&format!("/dashboard/{}", last.workspace_id)),
        None => overview::redirect_home(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_id_has_only_characters_of_a_cookie() {
        for id in ["ws_default", "ws_2Xa9"] {
            assert!(is_workspace_id(id), "{id}");
        }
        let long = format!("ws_{}", "a".repeat(62));
        for other in ["", "account", "ws", "ws_a;b", "ws_%0d", "ws_é", &long] {
            assert!(!is_workspace_id(other), "{other}");
        }
    }
}
