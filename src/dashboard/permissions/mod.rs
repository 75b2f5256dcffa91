//! The pages of permissions and roles, and of the keys that hold them.

mod choice;
mod holders;
mod role_settings;
mod roles;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use foundation::error::Error;
use foundation::model::{Permission, Role};
use serde_json::json;

use super::confirm::Confirm;
use super::form::{FormErrors, split_form_errors};
use super::format::count;
use super::layout::{Layout, Section, may};
use super::page_request::WorkspaceRequest;
use super::pagination::{Pages, paging};
use super::{Answer, page, redirect_to, refused_page};
use crate::domain::page::Paging;
use crate::domain::permission::Action;
use crate::domain::rbac;
use crate::domain::users::SIZE_MAX;
use crate::rpc::v2;
use crate::rpc::v2::permissions::create_permission::CreatePermission;
use crate::rpc::v2::permissions::delete_permission::DeletePermission;

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/permissions", get(list).post(create))
        .route("/dashboard/{workspace}/permissions/new", get(new))
        .route("/dashboard/{workspace}/permissions/{permission}", get(show))
        .route(
            "/dashboard/{workspace}/permissions/{permission}/delete",
            get(ask_delete).post(delete),
        )
        .merge(role_settings::routes())
        .merge(roles::routes())
        .merge(holders::routes())
}

#[derive(Template)]
#[template(path = "permissions/list.html")]
struct List<'a> {
    shell: Layout,
    workspace: String,
    path: String,
    rows: Vec<Permission>,
    search: &'a str,
    pages: Pages,
    may_create: bool,
}

#[derive(Template)]
#[template(path = "permissions/new.html")]
struct New<'a> {
    shell: Layout,
    workspace: String,
    slug: &'a str,
    name: &'a str,
    description: &'a str,
    faults: FormErrors,
}

#[derive(Template)]
#[template(path = "permissions/show.html")]
struct Show {
    shell: Layout,
    workspace: String,
    permission: Permission,
    in_roles: String,
    on_keys: String,
    roles: Vec<Role>,
    pages: Pages,
    /// The path of the page that lists its holders.
    holders: String,
    may_delete: bool,
}

/// Formats a number with its noun: `1 key`, `10,000+ keys`.
fn counted(number: i64, one: &str) -> String {
    format!("{} {one}{}", count(number, SIZE_MAX), if number == 1 { "" } else { "s" })
}

async fn list(request: WorkspaceRequest) -> Answer {
    let path = request.path("/permissions");
    let found =
        rbac::list_permissions(&request.visit.app, &request.caller, &paging(&request)).await?;
    page(&List {
        shell: Layout::of(&request, Section::Permissions, "Permissions").await?,
        workspace: request.membership.workspace_id.to_string(),
        pages: Pages::new(&request, &path, found.next.as_deref()),
        path,
        rows: found.items,
        search: request.visit.query.text("q"),
        may_create: may(&request, Action::CreatePermission),
    })
}

async fn filled_in(
    request: &WorkspaceRequest,
    faults: FormErrors,
) -> Result<New<'_>, super::Failure> {
    let form = &request.visit.form;
    Ok(New {
        shell: Layout::of(request, Section::Permissions, "New permission").await?,
        workspace: request.membership.workspace_id.to_string(),
        slug: form.text("slug"),
        name: form.text("name"),
        description: form.text("description"),
        faults,
    })
}

async fn new(request: WorkspaceRequest) -> Answer {
    request.caller.require(Action::CreatePermission)?;
    page(&filled_in(&request, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> Answer {
    let form = &request.visit.form;
    let (slug, name) = (form.text("slug").trim(), form.text("name").trim());
    let body = json!({
        "slug": slug,
        "name": if name.is_empty() { slug } else { name },
        "description": form.text("description").trim(),
    });
    let created = v2::call::<CreatePermission>(&request.visit.app, &request.caller, &body).await;
    match split_form_errors(created)? {
        Ok(created) => {
            let path = format!("/permissions/{}?notice=permission-created", created.permission_id);
            redirect_to(&request.path(&path))
        }
        Err(faults) => refused_page(&filled_in(&request, faults).await?),
    }
}

/// Loads a permission by its id or slug.
async fn found(request: &WorkspaceRequest, named: &str) -> Result<Permission, Error> {
    rbac::get_permission(&request.visit.app, &request.caller, named).await
}

async fn show(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    let app = &request.visit.app;
    let permission = found(&request, &named).await?;
    let held = rbac::count_holders(app, &request.caller, &permission.id).await?;
    let paging = Paging { search: String::new(), ..paging(&request) };
    let roles = rbac::roles_holding(app, &request.caller, &permission.id, &paging).await?;
    let path = request.path(&format!("/permissions/{}", permission.id));
    page(&Show {
        shell: Layout::of(&request, Section::Permissions, "Permission").await?,
        workspace: request.membership.workspace_id.to_string(),
        in_roles: count(held.roles, SIZE_MAX),
        on_keys: count(held.keys, SIZE_MAX),
        pages: Pages::new(&request, &path, roles.next.as_deref()),
        roles: roles.items,
        holders: holders::path(&request, &permission.slug),
        may_delete: may(&request, Action::DeletePermission),
        permission,
    })
}

async fn ask_delete(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    request.caller.require(Action::DeletePermission)?;
    let permission = found(&request, &named).await?;
    let held = rbac::count_holders(&request.visit.app, &request.caller, &permission.id).await?;
    let path = request.path(&format!("/permissions/{}", permission.id));
    page(&Confirm {
        shell: Layout::of(&request, Section::Permissions, "Delete permission").await?,
        question: format!("Delete {}?", permission.slug),
        told: vec![
            format!(
                "{} with a direct assignment and {} lose it immediately. Verifications that require it are then \
                rejected.",
                counted(held.keys, "key"),
                counted(held.roles, "role"),
            ),
            "A permission created later with the same slug is a new one; it is not assigned to them.".into(),
        ],
        act: format!("{path}/delete"),
        fields: Vec::new(),
        button: "Delete",
        back: path,
    })
}

async fn delete(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    let body = json!({ "permission": named });
    v2::call::<DeletePermission>(&request.visit.app, &request.caller, &body).await?;
    redirect_to(&request.path("/permissions?notice=permission-deleted"))
}
