//! Which keys can do something: those that hold a permission, and how.

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

/// Where the holders of a permission are listed.
pub fn path(asked: &WorkspaceRequest, slug: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("slug", slug);
    asked.path(&format!("/which-keys?{}", query.finish()))
}

#[derive(Template)]
#[template(path = "permissions/holders.html")]
struct List<'a> {
    shell: Layout,
    workspace: String,
    slug: &'a str,
    /// Absent: there is none of this slug.
    permission: Option<Permission>,
    rows: Vec<Row>,
    pages: Pages,
}

struct Row {
    key: KeyRow,
    is_direct: bool,
    roles: Vec<(RoleId, String)>,
}

async fn list(asked: WorkspaceRequest) -> Answer {
    let app = &asked.visit.app;
    let slug = asked.visit.query.text("slug").trim();
    let (permission, rows, next) = match slug {
        "" => (None, Vec::new(), None),
        slug => match rbac::list_holders(app, &asked.caller, slug, &paging(&asked)).await {
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
        shell: Layout::of(&asked, Section::Permissions, "Which keys can…?").await?,
        workspace: asked.membership.workspace_id.to_string(),
        slug,
        permission,
        rows: rows.into_iter().map(row).collect(),
        pages: Pages::new(&asked, &asked.path("/which-keys"), next.as_deref()),
    })
}
