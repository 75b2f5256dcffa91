//! Roles: named sets of permissions.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use foundation::error::Error;
use foundation::model::Role;
use serde_json::json;

use super::super::confirm::Confirm;
use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::format::count;
use super::super::layout::{Layout, Section, may};
use super::super::page_request::WorkspaceRequest;
use super::super::pagination::{Pages, paging};
use super::super::{Answer, page, redirect_to, refused_page};
use super::choice::{self, Choice};
use super::counted;
use crate::domain::permission::Action;
use crate::domain::rbac;
use crate::domain::users::SIZE_MAX;
use crate::rpc::v2;
use crate::rpc::v2::permissions::create_role::CreateRole;
use crate::rpc::v2::permissions::delete_role::DeleteRole;
use crate::rpc::v2::permissions::set_role_permissions::SetRolePermissions;

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/roles", get(list).post(create))
        .route("/dashboard/{workspace}/roles/new", get(new))
        .route("/dashboard/{workspace}/roles/{role}", get(show))
        .route("/dashboard/{workspace}/roles/{role}/permissions", get(change).post(set))
        .route("/dashboard/{workspace}/roles/{role}/delete", get(ask_delete).post(delete))
}

#[derive(Template)]
#[template(path = "permissions/roles.html")]
struct List<'a> {
    shell: Layout,
    workspace: String,
    path: String,
    rows: Vec<Role>,
    search: &'a str,
    pages: Pages,
    may_create: bool,
}

#[derive(Template)]
#[template(path = "permissions/role.html")]
struct Show {
    shell: Layout,
    workspace: String,
    role: Role,
    keys: String,
    may_describe: bool,
    may_change: bool,
    may_delete: bool,
}

/// A new role, or the permissions of one that there is.
#[derive(Template)]
#[template(path = "permissions/role_form.html")]
struct RoleForm {
    shell: Layout,
    is_new: bool,
    name: String,
    description: String,
    choice: Choice,
    faults: FormErrors,
    act: String,
    back: String,
}

async fn list(asked: WorkspaceRequest) -> Answer {
    let path = asked.path("/roles");
    let found = rbac::list_roles(&asked.visit.app, &asked.caller, &paging(&asked)).await?;
    page(&List {
        shell: Layout::of(&asked, Section::Permissions, "Roles").await?,
        workspace: asked.membership.workspace_id.to_string(),
        pages: Pages::new(&asked, &path, found.next.as_deref()),
        path,
        rows: found.items,
        search: asked.visit.query.text("q"),
        may_create: may(&asked, Action::CreateRole),
    })
}

/// The role of a page, by its id or its name.
pub async fn found(asked: &WorkspaceRequest, named: &str) -> Result<Role, Error> {
    rbac::get_role(&asked.visit.app, &asked.caller, named).await
}

async fn show(asked: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    let role = found(&asked, &named).await?;
    let keys = rbac::keys_with(&asked.visit.app, &asked.caller, &role.id).await?;
    page(&Show {
        shell: Layout::of(&asked, Section::Permissions, "Role").await?,
        workspace: asked.membership.workspace_id.to_string(),
        keys: count(keys, SIZE_MAX),
        may_describe: may(&asked, Action::UpdateRole),
        may_change: may(&asked, Action::AddPermissionToRole)
            && may(&asked, Action::RemovePermissionFromRole),
        may_delete: may(&asked, Action::DeleteRole),
        role,
    })
}

async fn making(asked: &WorkspaceRequest, faults: FormErrors) -> Result<RoleForm, Failure> {
    let form = &asked.visit.form;
    Ok(RoleForm {
        shell: Layout::of(asked, Section::Permissions, "New role").await?,
        is_new: true,
        name: form.text("name").to_owned(),
        description: form.text("description").to_owned(),
        choice: Choice::again(asked).await?,
        faults,
        act: asked.path("/roles"),
        back: asked.path("/roles"),
    })
}

async fn new(asked: WorkspaceRequest) -> Answer {
    asked.caller.require(Action::CreateRole)?;
    page(&making(&asked, FormErrors::default()).await?)
}

async fn create(asked: WorkspaceRequest) -> Answer {
    let form = &asked.visit.form;
    let request = json!({
        "name": form.text("name").trim(),
        "description": form.text("description").trim(),
        "permissions": choice::chosen(form),
    });
    match split_form_errors(
        v2::call::<CreateRole>(&asked.visit.app, &asked.caller, &request).await,
    )? {
        Ok(made) => {
            redirect_to(&asked.path(&format!("/roles/{}?notice=role-created", made.role_id)))
        }
        Err(faults) => refused_page(&making(&asked, faults).await?),
    }
}

async fn changing(
    asked: &WorkspaceRequest,
    role: Role,
    choice: Choice,
    faults: FormErrors,
) -> Result<RoleForm, Failure> {
    let path = asked.path(&format!("/roles/{}", role.id));
    Ok(RoleForm {
        shell: Layout::of(asked, Section::Permissions, "Permissions of a role").await?,
        is_new: false,
        name: role.name,
        description: String::new(),
        choice,
        faults,
        act: format!("{path}/permissions"),
        back: path,
    })
}

async fn change(asked: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::AddPermissionToRole)?;
    asked.caller.require(Action::RemovePermissionFromRole)?;
    let role = found(&asked, &named).await?;
    let slugs = role.permissions.iter().map(|permission| permission.slug.as_str());
    let choice = Choice::of(&asked, slugs, "").await?;
    page(&changing(&asked, role, choice, FormErrors::default()).await?)
}

async fn set(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let request = json!({ "roleId": id, "permissions": choice::chosen(&asked.visit.form) });
    let set = v2::call::<SetRolePermissions>(&asked.visit.app, &asked.caller, &request).await;
    match split_form_errors(set)? {
        Ok(_) => {
            let role = found(&asked, &id).await?;
            redirect_to(&asked.path(&format!("/roles/{}?notice=role-updated", role.id)))
        }
        Err(faults) => {
            let role = found(&asked, &id).await?;
            let choice = Choice::again(&asked).await?;
            refused_page(&changing(&asked, role, choice, faults).await?)
        }
    }
}

async fn ask_delete(asked: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::DeleteRole)?;
    let role = found(&asked, &named).await?;
    let keys = rbac::keys_with(&asked.visit.app, &asked.caller, &role.id).await?;
    let path = asked.path(&format!("/roles/{}", role.id));
    page(&Confirm {
        shell: Layout::of(&asked, Section::Permissions, "Delete a role").await?,
        question: format!("Delete {}?", role.name),
        told: vec![format!(
            "It is on {}, which lose it at once, and with it the {} that they have through no other role and not of \
            themselves. The permissions stay.",
            counted(keys, "key"),
            counted(i64::try_from(role.permissions.len()).unwrap_or(i64::MAX), "permission"),
        )],
        act: format!("{path}/delete"),
        fields: Vec::new(),
        button: "Delete",
        back: path,
    })
}

async fn delete(asked: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    v2::call::<DeleteRole>(&asked.visit.app, &asked.caller, &json!({ "role": named })).await?;
    redirect_to(&asked.path("/roles?notice=role-deleted"))
}
