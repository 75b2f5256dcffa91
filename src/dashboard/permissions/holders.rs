//! The page that lists the keys with a permission, and the source of each assignment.

use askama::Template;
use axum::Router;
use axum::routing::get;
use foundation::error::Error;
use foundation::id::RoleId;
use foundation::model::Permission;

use super::super::key_row::KeyRow;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::pagination::{Pages, paging};
use super::super::{Answer, page};
use crate::domain::rbac;

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/which-keys", get(list))
}

/// Returns the path of the page that lists the holders of a permission.
pub fn path(request: &WorkspaceRequest, slug: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("slug", slug);
    request.path(&format!("/which-keys?{}", query.finish()))
}

#[derive(Template)]
#[template(path = "permissions/holders.html")]
struct List<'a> {
    shell: Layout,
    workspace: String,
    slug: &'a str,
    /// The permission; `None` if no permission has this slug.
    permission: Option<Permission>,
    rows: Vec<Row>,
    pages: Pages,
}

struct Row {
    key: KeyRow,
    is_direct: bool,
    roles: Vec<(RoleId, String)>,
}

async fn list(request: WorkspaceRequest) -> Answer {
    let app = &request.visit.app;
    let slug = request.visit.query.text("slug").trim();
    let (permission, rows, next) = match slug {
        "" => (None, Vec::new(), None),
        slug => match rbac::list_holders(app, &request.caller, slug, &paging(&request)).await {
            Ok((permission, found)) => (Some(permission), found.items, found.next),
            Err(Error::NotFound(_)) => (None, Vec::new(), None),
            Err(error) => return Err(error.into()),
        },
    };
    let now = app.clock.now();
    let row = |holder: rbac::PermissionHolder| Row {
        key: KeyRow::new(holder.key, now),
        is_direct: holder.is_direct,
        roles: holder.roles,
    };
    page(&List {
        shell: Layout::of(&request, Section::Permissions, "Keys by permission").await?,
        workspace: request.membership.workspace_id.to_string(),
        slug,
        permission,
        rows: rows.into_iter().map(row).collect(),
        pages: Pages::new(&request, &request.path("/which-keys"), next.as_deref()),
    })
}
