//! The pages of roles.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use domain::bounds::ROLE_NAME_MAX;
use domain::page::COUNT_MAX;
use domain::permission::Action;
use domain::rbac::{self, MissingPolicy, NewRole, RbacRef};
use foundation::error::Error;
use foundation::id::RoleId;
use foundation::model::{AllowedChars, Role, RoleSummary, RoleWithPermissionCount};

use super::super::confirm::ConfirmPage;
use super::super::failure::Failure;
use super::super::field_reader::FieldReader;
use super::super::form::{Form, FormErrors, split_form_errors};
use super::super::format::{format_count, format_grouped, format_quantity, format_size};
use super::super::layout::{Layout, Section, is_allowed};
use super::super::list_frame::{ListFrame, RowAction};
use super::super::one_time_form::create_once;
use super::super::page_request::WorkspaceRequest;
use super::super::sort_link::SortLink;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::choice::{self, PermissionChoice};
use super::read_description;

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/roles", get(list).post(create))
        .route("/dashboard/{workspace}/roles/new", get(show_create_form))
        .route("/dashboard/{workspace}/roles/{role}", get(show))
        .route(
            "/dashboard/{workspace}/roles/{role}/permissions",
            get(show_permissions_form).post(save_permissions),
        )
        .route("/dashboard/{workspace}/roles/{role}/delete", get(confirm_delete).post(delete))
}

/// The menu of a row.
const ROW_ACTIONS: &[RowAction] = &[
    RowAction { label: "Settings", path: "settings", needs: Some(Action::UpdateRole) },
    RowAction { label: "Delete", path: "delete", needs: Some(Action::DeleteRole) },
];

#[derive(Template)]
#[template(path = "permissions/roles.html")]
struct RoleListPage {
    layout: Layout,
    list: ListFrame,
    rows: Vec<RoleTableRow>,
}

#[derive(Template)]
#[template(path = "permissions/role.html")]
struct RolePage {
    layout: Layout,
    workspace: String,
    role: Role,
    permission_count: String,
    keys: String,
    may_describe: bool,
    may_change: bool,
    may_delete: bool,
}

/// A role in a list.
pub struct RoleTableRow {
    pub id: RoleId,
    pub name: String,
    pub description: Option<String>,
    pub permissions: String,
}

impl RoleTableRow {
    pub fn new(role: Role) -> Self {
        Self {
            permissions: format_size(role.permissions.len()),
            id: role.id,
            name: role.name,
            description: role.description,
        }
    }

    pub fn with_count(counted: RoleWithPermissionCount) -> Self {
        let RoleSummary { id, name, description } = counted.role;
        Self { id, name, description, permissions: format_grouped(counted.permission_count) }
    }
}

/// The form for a new role, or for the permissions of an existing one.
#[derive(Template)]
#[template(path = "permissions/role_form.html")]
struct RoleFormPage {
    layout: Layout,
    is_new: bool,
    name: String,
    description: String,
    choice: PermissionChoice,
    /// The original slugs of an existing role, so that concurrent changes of others are kept.
    original: String,
    errors: FormErrors,
    action_url: String,
    back_url: String,
}

async fn list(request: WorkspaceRequest) -> PageResult {
    let (sort, paging) = SortLink::by_name(&request, "/roles");
    let context = &request.page_request.app.context;
    let found = rbac::list_roles(context, &request.caller, &paging).await?;
    let list = ListFrame::new(&request, "/roles", found.next_start.as_deref());
    render_page(&RoleListPage {
        layout: Layout::for_workspace(&request, Section::Permissions, "Roles").await?,
        list: list
            .with_sort(sort)
            .with_create_form(&request, "/roles/new", Action::CreateRole)
            .with_row_actions(&request, ROW_ACTIONS),
        rows: found.items.into_iter().map(RoleTableRow::new).collect(),
    })
}

/// Loads a role by its id or name.
pub async fn load(request: &WorkspaceRequest, named: &str) -> Result<Role, Error> {
    let reference = RbacRef::IdOrName(named);
    rbac::get_role(&request.page_request.app.context, &request.caller, reference).await
}

async fn show(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> PageResult {
    let role = load(&request, &named).await?;
    let keys =
        rbac::count_keys_with_role(&request.page_request.app.context, &request.caller, &role.id)
            .await?;
    render_page(&RolePage {
        layout: Layout::for_workspace(&request, Section::Permissions, "Roles")
            .await?
            .about(&role.name),
        workspace: request.membership.workspace_id.to_string(),
        permission_count: format_size(role.permissions.len()),
        keys: format_count(keys, COUNT_MAX),
        may_describe: is_allowed(&request, Action::UpdateRole),
        may_change: is_allowed(&request, Action::AddPermissionToRole)
            && is_allowed(&request, Action::RemovePermissionFromRole),
        may_delete: is_allowed(&request, Action::DeleteRole),
        role,
    })
}

async fn build_create_form(
    request: &WorkspaceRequest,
    errors: FormErrors,
) -> Result<RoleFormPage, Failure> {
    let form = &request.page_request.form;
    Ok(RoleFormPage {
        layout: Layout::for_workspace(request, Section::Permissions, "Create role").await?,
        is_new: true,
        name: form.text("name").to_owned(),
        description: form.text("description").to_owned(),
        choice: PermissionChoice::from_form(request).await?,
        original: String::new(),
        errors,
        action_url: request.workspace_path("/roles"),
        back_url: request.workspace_path("/roles"),
    })
}

async fn show_create_form(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::CreateRole)?;
    render_page(&build_create_form(&request, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> PageResult {
    match split_form_errors(create_once(&request, create_from_form(&request)).await)? {
        Ok(id) => redirect_to(&request.workspace_path(&format!("/roles/{id}?notice=role-created"))),
        Err(errors) => render_invalid_page(&build_create_form(&request, errors).await?),
    }
}

async fn create_from_form(request: &WorkspaceRequest) -> Result<RoleId, Error> {
    let new = read_role(&request.page_request.form)?;
    rbac::create_role(&request.page_request.app.context, &request.caller, new).await
}

fn read_role(form: &Form) -> Result<NewRole, Error> {
    let mut fields = FieldReader::default();
    let name = form.text("name").trim();
    let new = NewRole {
        name: fields.text("name", name, 1..=ROLE_NAME_MAX, AllowedChars::Printable),
        description: read_description(&mut fields, form),
        permissions: choice::read_slugs(&mut fields, form),
    };
    fields.finish(new)
}

async fn build_permissions_form(
    request: &WorkspaceRequest,
    role: Role,
    (choice, original): (PermissionChoice, String),
    errors: FormErrors,
) -> Result<RoleFormPage, Failure> {
    let path = request.workspace_path(&format!("/roles/{}", role.id));
    Ok(RoleFormPage {
        layout: Layout::for_workspace(request, Section::Permissions, "Role permissions")
            .await?
            .about(&role.name),
        is_new: false,
        name: role.name,
        description: String::new(),
        choice,
        original,
        errors,
        action_url: format!("{path}/permissions"),
        back_url: path,
    })
}

async fn show_permissions_form(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::AddPermissionToRole)?;
    request.caller.require(Action::RemovePermissionFromRole)?;
    let role = load(&request, &named).await?;
    let slugs: Vec<_> = role.permissions.iter().map(|known| known.slug.as_str()).collect();
    let original = slugs.join(" ");
    let choice = PermissionChoice::load(&request, slugs.into_iter(), "").await?;
    let filled = (choice, original);
    render_page(&build_permissions_form(&request, role, filled, FormErrors::default()).await?)
}

async fn save_permissions(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    match split_form_errors(set_permissions_from_form(&request, &id).await)? {
        Ok(()) => {
            let role = load(&request, &id).await?;
            redirect_to(&request.workspace_path(&format!("/roles/{}?notice=role-updated", role.id)))
        }
        Err(errors) => {
            let role = load(&request, &id).await?;
            let original = request.page_request.form.text("was").to_owned();
            let filled = (PermissionChoice::from_form(&request).await?, original);
            render_invalid_page(&build_permissions_form(&request, role, filled, errors).await?)
        }
    }
}

async fn set_permissions_from_form(request: &WorkspaceRequest, id: &str) -> Result<(), Error> {
    let (context, form) = (&request.page_request.app.context, &request.page_request.form);
    let mut fields = FieldReader::default();
    let slugs = choice::read_slugs(&mut fields, form);
    let slugs = fields.finish(slugs)?;
    let change = |stored| choice::apply_changes(stored, &slugs, form.text("was"));
    let (id, missing) = (RoleId::from(id), MissingPolicy::Create);
    rbac::change_role_permissions(context, &request.caller, &id, missing, change).await.map(drop)
}

async fn confirm_delete(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::DeleteRole)?;
    let role = load(&request, &named).await?;
    let keys =
        rbac::count_keys_with_role(&request.page_request.app.context, &request.caller, &role.id)
            .await?;
    let path = request.workspace_path(&format!("/roles/{}", role.id));
    render_page(&ConfirmPage {
        layout: Layout::for_workspace(&request, Section::Permissions, "Delete role")
            .await?
            .about(&role.name),
        question: format!("Delete {}?", role.name),
        consequences: vec![format!(
            "The role is removed from {} immediately. They lose its {}, unless assigned directly or through another \
            role. The permissions themselves are not deleted.",
            format_quantity(keys, COUNT_MAX, "key"),
            format_quantity(
                i64::try_from(role.permissions.len()).unwrap_or(i64::MAX),
                COUNT_MAX,
                "permission"
            ),
        )],
        action_url: format!("{path}/delete"),
        fields: Vec::new(),
        button: "Delete",
        back_url: path,
        back_label: role.name,
    })
}

async fn delete(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> PageResult {
    let context = &request.page_request.app.context;
    rbac::delete_role(context, &request.caller, RbacRef::IdOrName(&named)).await?;
    redirect_to(&request.workspace_path("/roles?notice=role-deleted"))
}
