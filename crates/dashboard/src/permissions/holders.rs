//! The page that lists the keys with a permission, and the source of each assignment.

use askama::Template;
use axum::Router;
use axum::routing::get;
use domain::rbac;
use foundation::error::Error;
use foundation::id::RoleId;
use foundation::model::Permission;

use super::super::key_row::KeySummaryRow;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::pagination::{PageLinks, paging_from_query};
use super::super::{PageResult, render_page};

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/which-keys", get(list))
}

/// Returns the path of the page that lists the holders of a permission.
pub fn holders_path(request: &WorkspaceRequest, slug: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("slug", slug);
    request.workspace_path(&format!("/which-keys?{}", query.finish()))
}

#[derive(Template)]
#[template(path = "permissions/holders.html")]
struct HolderListPage<'a> {
    layout: Layout,
    workspace: String,
    slug: &'a str,
    /// The permission; `None` if no permission has this slug.
    permission: Option<Permission>,
    rows: Vec<HolderRow>,
    pages: PageLinks,
}

struct HolderRow {
    key: KeySummaryRow,
    is_direct: bool,
    roles: Vec<(RoleId, String)>,
}

async fn list(request: WorkspaceRequest) -> PageResult {
    let app = &request.page_request.app;
    let slug = request.page_request.query.text("slug").trim();
    let (permission, rows, next) = match slug {
        "" => (None, Vec::new(), None),
        slug => match rbac::list_holders(
            &app.context,
            &request.caller,
            slug,
            &paging_from_query(&request),
        )
        .await
        {
            Ok((permission, found)) => (Some(permission), found.items, found.next_start),
            Err(Error::NotFound(_)) => (None, Vec::new(), None),
            Err(error) => return Err(error.into()),
        },
    };
    let (keys, sources): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .map(|holder: rbac::PermissionHolder| (holder.key, (holder.is_direct, holder.roles)))
        .unzip();
    let keys = KeySummaryRow::list(&app.context, keys).await?;
    let rows = keys.into_iter().zip(sources);
    let row = |(key, (is_direct, roles))| HolderRow { key, is_direct, roles };
    render_page(&HolderListPage {
        layout: Layout::for_workspace(&request, Section::Permissions, "Keys by permission").await?,
        workspace: request.membership.workspace_id.to_string(),
        slug,
        permission,
        rows: rows.map(row).collect(),
        pages: PageLinks::new(&request, &request.workspace_path("/which-keys"), next.as_deref()),
    })
}
