//! The pages of permissions and roles, and of the keys that hold them.

mod choice;
mod holders;
mod role_settings;
mod roles;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use domain::bounds::{DESCRIPTION_MAX, PERMISSION_NAME_MAX, SLUG_MAX};
use domain::page::COUNT_MAX;
use domain::page::Paging;
use domain::permission::Action;
use domain::rbac::{self, NewPermission, RbacRef};
use foundation::error::Error;
use foundation::id::PermissionId;
use foundation::model::{AllowedChars, Permission};
use roles::RoleTableRow;

use super::confirm::ConfirmPage;
use super::field_reader::FieldReader;
use super::form::{Form, FormErrors, split_form_errors};
use super::format::{format_count, format_quantity};
use super::layout::{Layout, Section, is_allowed};
use super::list_frame::{ListFrame, RowAction};
use super::one_time_form::create_once;
use super::page_request::WorkspaceRequest;
use super::pagination::{PageLinks, paging_from_query};
use super::sort_link::SortLink;
use super::{PageResult, redirect_to, render_invalid_page, render_page};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/permissions", get(list).post(create))
        .route("/dashboard/{workspace}/permissions/new", get(show_form))
        .route("/dashboard/{workspace}/permissions/{permission}", get(show))
        .route(
            "/dashboard/{workspace}/permissions/{permission}/delete",
            get(confirm_delete).post(delete),
        )
        .merge(role_settings::routes())
        .merge(roles::routes())
        .merge(holders::routes())
}

/// The menu of a row.
const ROW_ACTIONS: &[RowAction] =
    &[RowAction { label: "Delete", path: "delete", needs: Some(Action::DeletePermission) }];

#[derive(Template)]
#[template(path = "permissions/list.html")]
struct PermissionListPage {
    layout: Layout,
    list: ListFrame,
    rows: Vec<Permission>,
}

#[derive(Template)]
#[template(path = "permissions/new.html")]
struct NewPermissionPage<'a> {
    layout: Layout,
    workspace: String,
    slug: &'a str,
    name: &'a str,
    description: &'a str,
    errors: FormErrors,
}

#[derive(Template)]
#[template(path = "permissions/show.html")]
struct PermissionPage {
    layout: Layout,
    workspace: String,
    permission: Permission,
    role_count: String,
    key_count: String,
    roles: Vec<RoleTableRow>,
    pages: PageLinks,
    /// The path of the page that lists its holders.
    holders_path: String,
    may_delete: bool,
}

async fn list(request: WorkspaceRequest) -> PageResult {
    let (sort, paging) = SortLink::by_name(&request, "/permissions");
    let context = &request.page_request.app.context;
    let found = rbac::list_permissions(context, &request.caller, &paging).await?;
    let list = ListFrame::new(&request, "/permissions", found.next_start.as_deref());
    render_page(&PermissionListPage {
        layout: Layout::for_workspace(&request, Section::Permissions, "Permissions").await?,
        list: list
            .with_sort(sort)
            .with_create_form(&request, "/permissions/new", Action::CreatePermission)
            .with_row_actions(&request, ROW_ACTIONS),
        rows: found.items,
    })
}

async fn build_form(
    request: &WorkspaceRequest,
    errors: FormErrors,
) -> Result<NewPermissionPage<'_>, super::Failure> {
    let form = &request.page_request.form;
    Ok(NewPermissionPage {
        layout: Layout::for_workspace(request, Section::Permissions, "Create permission").await?,
        workspace: request.membership.workspace_id.to_string(),
        slug: form.text("slug"),
        name: form.text("name"),
        description: form.text("description"),
        errors,
    })
}

async fn show_form(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::CreatePermission)?;
    render_page(&build_form(&request, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> PageResult {
    match split_form_errors(create_once(&request, create_from_form(&request)).await)? {
        Ok(id) => {
            let path = format!("/permissions/{id}?notice=permission-created");
            redirect_to(&request.workspace_path(&path))
        }
        Err(errors) => render_invalid_page(&build_form(&request, errors).await?),
    }
}

async fn create_from_form(request: &WorkspaceRequest) -> Result<PermissionId, Error> {
    let new = read_permission(&request.page_request.form)?;
    rbac::create_permission(&request.page_request.app.context, &request.caller, new).await
}

/// Reads the permission to create. Its default name is its slug.
fn read_permission(form: &Form) -> Result<NewPermission, Error> {
    let mut fields = FieldReader::default();
    let slug = fields.text("slug", form.text("slug").trim(), 1..=SLUG_MAX, AllowedChars::Slug);
    let name = match form.text("name").trim() {
        "" => slug.clone(),
        name => fields.text("name", name, 1..=PERMISSION_NAME_MAX, AllowedChars::Printable),
    };
    let description = read_description(&mut fields, form);
    fields.finish(NewPermission { slug, name, description })
}

/// Reads the description of a permission or role.
fn read_description(fields: &mut FieldReader, form: &Form) -> Option<String> {
    let text = form.text("description").trim();
    fields.optional_text("description", text, DESCRIPTION_MAX, AllowedChars::NonNul)
}

/// Loads a permission by its id or slug.
async fn load(request: &WorkspaceRequest, named: &str) -> Result<Permission, Error> {
    let reference = RbacRef::IdOrName(named);
    rbac::get_permission(&request.page_request.app.context, &request.caller, reference).await
}

async fn show(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> PageResult {
    let app = &request.page_request.app;
    let permission = load(&request, &named).await?;
    let held = rbac::count_holders(&app.context, &request.caller, &permission.id).await?;
    let paging = Paging { search: String::new(), ..paging_from_query(&request) };
    let roles =
        rbac::list_roles_with_permission(&app.context, &request.caller, &permission.id, &paging)
            .await?;
    let path = request.workspace_path(&format!("/permissions/{}", permission.id));
    render_page(&PermissionPage {
        layout: Layout::for_workspace(&request, Section::Permissions, "Permissions")
            .await?
            .about(&permission.slug),
        workspace: request.membership.workspace_id.to_string(),
        role_count: format_count(held.roles, COUNT_MAX),
        key_count: format_count(held.keys, COUNT_MAX),
        pages: PageLinks::new(&request, &path, roles.next_start.as_deref()),
        roles: roles.items.into_iter().map(RoleTableRow::with_count).collect(),
        holders_path: holders::holders_path(&request, &permission.slug),
        may_delete: is_allowed(&request, Action::DeletePermission),
        permission,
    })
}

async fn confirm_delete(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::DeletePermission)?;
    let permission = load(&request, &named).await?;
    let held =
        rbac::count_holders(&request.page_request.app.context, &request.caller, &permission.id)
            .await?;
    let path = request.workspace_path(&format!("/permissions/{}", permission.id));
    render_page(&ConfirmPage {
        layout: Layout::for_workspace(&request, Section::Permissions, "Delete permission")
            .await?
            .about(&permission.slug),
        question: format!("Delete {}?", permission.slug),
        consequences: vec![
            format!(
                "{} with a direct assignment and {} lose it immediately. Verifications that require it are then \
                rejected.",
                format_quantity(held.keys, COUNT_MAX, "key"),
                format_quantity(held.roles, COUNT_MAX, "role"),
            ),
            "A permission that you create later with the same slug is not assigned to them.".into(),
        ],
        action_url: format!("{path}/delete"),
        fields: Vec::new(),
        button: "Delete",
        back_url: path,
        back_label: permission.slug,
    })
}

async fn delete(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> PageResult {
    let context = &request.page_request.app.context;
    rbac::delete_permission(context, &request.caller, RbacRef::IdOrName(&named)).await?;
    redirect_to(&request.workspace_path("/permissions?notice=permission-deleted"))
}
