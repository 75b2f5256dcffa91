//! The pages of roles.

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

/// The form for a new role, or for the permissions of an existing one.
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

async fn list(request: WorkspaceRequest) -> Answer {
    let path = request.path("/roles");
    let found = rbac::list_roles(&request.visit.app, &request.caller, &paging(&request)).await?;
    page(&List {
        shell: Layout::of(&request, Section::Permissions, "Roles").await?,
        workspace: request.membership.workspace_id.to_string(),
        pages: Pages::new(&request, &path, found.next.as_deref()),
        path,
        rows: found.items,
        search: request.visit.query.text("q"),
        may_create: may(&request, Action::CreateRole),
    })
}

/// Loads a role by its id or name.
pub async fn found(request: &WorkspaceRequest, named: &str) -> Result<Role, Error> {
    rbac::get_role(&request.visit.app, &request.caller, named).await
}

async fn show(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    let role = found(&request, &named).await?;
    let keys = rbac::keys_with(&request.visit.app, &request.caller, &role.id).await?;
    page(&Show {
        shell: Layout::of(&request, Section::Permissions, "Role").await?,
        workspace: request.membership.workspace_id.to_string(),
        keys: count(keys, SIZE_MAX),
        may_describe: may(&request, Action::UpdateRole),
        may_change: may(&request, Action::AddPermissionToRole)
            && may(&request, Action::RemovePermissionFromRole),
        may_delete: may(&request, Action::DeleteRole),
        role,
    })
}

async fn making(request: &WorkspaceRequest, faults: FormErrors) -> Result<RoleForm, Failure> {
    let form = &request.visit.form;
    Ok(RoleForm {
        shell: Layout::of(request, Section::Permissions, "New role").await?,
        is_new: true,
        name: form.text("name").to_owned(),
        description: form.text("description").to_owned(),
        choice: Choice::again(request).await?,
        faults,
        act: request.path("/roles"),
        back: request.path("/roles"),
    })
}

async fn new(request: WorkspaceRequest) -> Answer {
    request.caller.require(Action::CreateRole)?;
    page(&making(&request, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> Answer {
    let form = &request.visit.form;
    let body = json!({
        "name": form.text("name").trim(),
        "description": form.text("description").trim(),
        "permissions": choice::chosen(form),
    });
    match split_form_errors(
        v2::call::<CreateRole>(&request.visit.app, &request.caller, &body).await,
    )? {
        Ok(role) => {
            redirect_to(&request.path(&format!("/roles/{}?notice=role-created", role.role_id)))
        }
        Err(faults) => refused_page(&making(&request, faults).await?),
    }
}

async fn changing(
    request: &WorkspaceRequest,
    role: Role,
    choice: Choice,
    faults: FormErrors,
) -> Result<RoleForm, Failure> {
    let path = request.path(&format!("/roles/{}", role.id));
    Ok(RoleForm {
        shell: Layout::of(request, Section::Permissions, "Role permissions").await?,
        is_new: false,
        name: role.name,
        description: String::new(),
        choice,
        faults,
        act: format!("{path}/permissions"),
        back: path,
    })
}

async fn change(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    request.caller.require(Action::AddPermissionToRole)?;
    request.caller.require(Action::RemovePermissionFromRole)?;
    let role = found(&request, &named).await?;
    let slugs = role.permissions.iter().map(|permission| permission.slug.as_str());
    let choice = Choice::of(&request, slugs, "").await?;
    page(&changing(&request, role, choice, FormErrors::default()).await?)
}

async fn set(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let body = json!({ "roleId": id, "permissions": choice::chosen(&request.visit.form) });
    let set = v2::call::<SetRolePermissions>(&request.visit.app, &request.caller, &body).await;
    match split_form_errors(set)? {
        Ok(_) => {
            let role = found(&request, &id).await?;
            redirect_to(&request.path(&format!("/roles/{}?notice=role-updated", role.id)))
        }
        Err(faults) => {
            let role = found(&request, &id).await?;
            let choice = Choice::again(&request).await?;
            refused_page(&changing(&request, role, choice, faults).await?)
        }
    }
}

async fn ask_delete(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    request.caller.require(Action::DeleteRole)?;
    let role = found(&request, &named).await?;
    let keys = rbac::keys_with(&request.visit.app, &request.caller, &role.id).await?;
    let path = request.path(&format!("/roles/{}", role.id));
    page(&Confirm {
        shell: Layout::of(&request, Section::Permissions, "Delete role").await?,
        question: format!("Delete {}?", role.name),
        told: vec![format!(
            "It is removed from {} immediately. They lose its {}, unless these are assigned directly or through \
            another role. The permissions themselves remain.",
            counted(keys, "key"),
            counted(i64::try_from(role.permissions.len()).unwrap_or(i64::MAX), "permission"),
        )],
        act: format!("{path}/delete"),
        fields: Vec::new(),
        button: "Delete",
        back: path,
    })
}

async fn delete(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    v2::call::<DeleteRole>(&request.visit.app, &request.caller, &json!({ "role": named })).await?;
    redirect_to(&request.path("/roles?notice=role-deleted"))
}
