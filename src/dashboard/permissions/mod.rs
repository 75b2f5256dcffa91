//! Permissions and roles, and which keys hold what.

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
    /// Where the keys that hold it are listed.
    holders: String,
    may_delete: bool,
}

/// So many of a thing, or so many at least: `1 key`, `10,000+ keys`.
fn counted(number: i64, one: &str) -> String {
    format!("{} {one}{}", count(number, SIZE_MAX), if number == 1 { "" } else { "s" })
}

async fn list(asked: WorkspaceRequest) -> Answer {
    let path = asked.path("/permissions");
    let found = rbac::list_permissions(&asked.visit.app, &asked.caller, &paging(&asked)).await?;
    page(&List {
        shell: Layout::of(&asked, Section::Permissions, "Permissions").await?,
        workspace: asked.membership.workspace_id.to_string(),
        pages: Pages::new(&asked, &path, found.next.as_deref()),
        path,
        rows: found.items,
        search: asked.visit.query.text("q"),
        may_create: may(&asked, Action::CreatePermission),
    })
}

async fn filled_in(
    asked: &WorkspaceRequest,
    faults: FormErrors,
) -> Result<New<'_>, super::Failure> {
    let form = &asked.visit.form;
    Ok(New {
        shell: Layout::of(asked, Section::Permissions, "New permission").await?,
        workspace: asked.membership.workspace_id.to_string(),
        slug: form.text("slug"),
        name: form.text("name"),
        description: form.text("description"),
        faults,
    })
}

async fn new(asked: WorkspaceRequest) -> Answer {
    asked.caller.require(Action::CreatePermission)?;
    page(&filled_in(&asked, FormErrors::default()).await?)
}

async fn create(asked: WorkspaceRequest) -> Answer {
    let form = &asked.visit.form;
    let (slug, name) = (form.text("slug").trim(), form.text("name").trim());
    let request = json!({
        "slug": slug,
        "name": if name.is_empty() { slug } else { name },
        "description": form.text("description").trim(),
    });
    let made = v2::call::<CreatePermission>(&asked.visit.app, &asked.caller, &request).await;
    match split_form_errors(made)? {
        Ok(made) => {
            let path = format!("/permissions/{}?notice=permission-created", made.permission_id);
            redirect_to(&asked.path(&path))
        }
        Err(faults) => refused_page(&filled_in(&asked, faults).await?),
    }
}

/// The permission of a page, by its id or its slug.
async fn found(asked: &WorkspaceRequest, named: &str) -> Result<Permission, Error> {
    rbac::get_permission(&asked.visit.app, &asked.caller, named).await
}

async fn show(asked: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    let app = &asked.visit.app;
    let permission = found(&asked, &named).await?;
    let held = rbac::count_holders(app, &asked.caller, &permission.id).await?;
    let paging = Paging { search: String::new(), ..paging(&asked) };
    let roles = rbac::roles_holding(app, &asked.caller, &permission.id, &paging).await?;
    let path = asked.path(&format!("/permissions/{}", permission.id));
    page(&Show {
        shell: Layout::of(&asked, Section::Permissions, "Permission").await?,
        workspace: asked.membership.workspace_id.to_string(),
        in_roles: count(held.roles, SIZE_MAX),
        on_keys: count(held.keys, SIZE_MAX),
        pages: Pages::new(&asked, &path, roles.next.as_deref()),
        roles: roles.items,
        holders: holders::path(&asked, &permission.slug),
        may_delete: may(&asked, Action::DeletePermission),
        permission,
    })
}

async fn ask_delete(asked: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::DeletePermission)?;
    let permission = found(&asked, &named).await?;
    let held = rbac::count_holders(&asked.visit.app, &asked.caller, &permission.id).await?;
    let path = asked.path(&format!("/permissions/{}", permission.id));
    page(&Confirm {
        shell: Layout::of(&asked, Section::Permissions, "Delete a permission").await?,
        question: format!("Delete {}?", permission.slug),
        told: vec![
            format!(
                "{} of themselves and {} have it, and lose it at once. Whoever asks a verification for it is then \
                refused.",
                counted(held.keys, "key"),
                counted(held.roles, "role"),
            ),
            "A permission that is made later with the same slug is another one: they do not get it back.".into(),
        ],
        act: format!("{path}/delete"),
        fields: Vec::new(),
        button: "Delete",
        back: path,
    })
}

async fn delete(asked: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    let request = json!({ "permission": named });
    v2::call::<DeletePermission>(&asked.visit.app, &asked.caller, &request).await?;
    redirect_to(&asked.path("/permissions?notice=permission-deleted"))
}
