//! The search over everything in a workspace.

use askama::Template;
use axum::Router;
use axum::routing::get;
use domain::keys::{find_deletion, search as key_search};
use domain::page::Paging;
use domain::permission::Action;
use domain::ratelimits::namespaces;
use domain::{apis, identities, rbac, root_keys};
use foundation::error::Error;
use foundation::id::KeyId;

use super::failure::Failure;
use super::format::format_start;
use super::keys::{find_full_key, may_be_full_key};
use super::layout::{Layout, Section, is_allowed};
use super::page_request::WorkspaceRequest;
use super::{PageResult, redirect_to, render_invalid_page, render_page};

/// The number of results of each kind. Its own list has the others.
const GROUP_ROWS: usize = 5;

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/search", get(show).post(search))
}

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    layout: Layout,
    path: String,
    /// The text to show in the field; empty if it may be a full key.
    text: String,
    is_searched: bool,
    /// Whether the text may be a full key that does not belong to this workspace.
    is_unknown: bool,
    groups: Vec<ResultGroup>,
}

/// Results of one kind.
struct ResultGroup {
    title: &'static str,
    rows: Vec<ResultRow>,
    /// The list with all results; `None` if these are all.
    list_path: Option<String>,
}

struct ResultRow {
    path: String,
    name: String,
    detail: String,
}

async fn show(request: WorkspaceRequest) -> PageResult {
    let text = request.page_request.query.text("q").trim().to_owned();
    render_page(&build_page(&request, &text).await?)
}

/// Searches, or goes to the page of a full key, which must not get into a URL.
async fn search(request: WorkspaceRequest) -> PageResult {
    let text = request.page_request.form.text("q").trim();
    if let Some(path) = find_full_key(&request, text).await? {
        return redirect_to(&path);
    }
    if !may_be_full_key(text) {
        let query = request.page_request.form.query_without(&["csrf"]).finish();
        return redirect_to(&request.workspace_path(&format!("/search?{query}")));
    }
    let page = build_page(&request, text).await?;
    match page.is_unknown {
        true => render_invalid_page(&page),
        false => render_page(&page),
    }
}

async fn build_page(request: &WorkspaceRequest, text: &str) -> Result<SearchPage, Failure> {
    let mut groups = Vec::new();
    if !text.is_empty() {
        let paging = Paging { search: text.to_owned(), limit: GROUP_ROWS, ..Paging::default() };
        groups.push(search_keys(request, &paging).await?);
        groups.push(search_identities(request, &paging).await?);
        groups.push(search_apis(request, &paging).await?);
        groups.push(search_namespaces(request, &paging).await?);
        groups.extend(search_rbac(request, &paging).await?);
        groups.extend(search_root_keys(request, &paging).await?);
        groups.retain(|group| !group.rows.is_empty());
    }
    let is_secret = may_be_full_key(text);
    for group in groups.iter_mut().filter(|_| is_secret) {
        group.list_path = None;
    }
    Ok(SearchPage {
        layout: Layout::for_workspace(request, Section::Search, "Search").await?,
        path: request.workspace_path("/search"),
        is_searched: !text.is_empty(),
        is_unknown: is_secret && groups.is_empty(),
        text: if is_secret { String::new() } else { text.to_owned() },
        groups,
    })
}

impl ResultGroup {
    /// Creates the group of the list at `list` within the workspace.
    fn new(
        request: &WorkspaceRequest,
        title: &'static str,
        list: &str,
        paging: &Paging,
        has_more: bool,
        rows: impl Iterator<Item = (String, String, String)>,
    ) -> Self {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("q", &paging.search)
            .finish();
        let row = |(id, name, detail): (String, String, String)| ResultRow {
            path: request.workspace_path(&format!("{list}/{id}")),
            name,
            detail,
        };
        Self {
            title,
            rows: rows.map(row).collect(),
            list_path: has_more.then(|| request.workspace_path(&format!("{list}?{query}"))),
        }
    }
}

async fn search_keys(request: &WorkspaceRequest, paging: &Paging) -> Result<ResultGroup, Error> {
    let (context, caller) = (&request.page_request.app.context, &request.caller);
    let found = key_search::list_page(context, caller, None, None, paging).await?;
    let row = |key: foundation::model::Key| {
        let name = key.name.unwrap_or_else(|| "Unnamed".into());
        (key.id.to_string(), name, format_start(&key.start, &key.id))
    };
    let mut rows: Vec<_> = found.items.into_iter().map(|item| row(item.stored.key)).collect();
    if rows.is_empty()
        && let Some(deletion) =
            find_deletion(context, caller, &KeyId::from(paging.search.as_str())).await?
    {
        let name = deletion.key.name.unwrap_or_else(|| "Unnamed".into());
        rows.push((deletion.key.id.to_string(), name, "Deleted".into()));
    }
    let has_more = found.next_id.is_some();
    Ok(ResultGroup::new(request, "Keys", "/keys", paging, has_more, rows.into_iter()))
}

async fn search_identities(
    request: &WorkspaceRequest,
    paging: &Paging,
) -> Result<ResultGroup, Error> {
    let context = &request.page_request.app.context;
    let found = identities::list(context, &request.caller, None, paging).await?;
    let has_more = found.next_id.is_some();
    let rows = found.items.into_iter().map(|identity| {
        let id = identity.id.to_string();
        (id.clone(), identity.external_id, id)
    });
    Ok(ResultGroup::new(request, "Identities", "/identities", paging, has_more, rows))
}

async fn search_apis(request: &WorkspaceRequest, paging: &Paging) -> Result<ResultGroup, Error> {
    let context = &request.page_request.app.context;
    let found = apis::list_for_caller(context, &request.caller, paging).await?;
    let has_more = found.next_id.is_some();
    let rows =
        found.items.into_iter().map(|api| (api.id.to_string(), api.name, api.id.to_string()));
    Ok(ResultGroup::new(request, "APIs", "/apis", paging, has_more, rows))
}

async fn search_namespaces(
    request: &WorkspaceRequest,
    paging: &Paging,
) -> Result<ResultGroup, Error> {
    let context = &request.page_request.app.context;
    let found = namespaces::list_for_caller(context, &request.caller, paging).await?;
    let has_more = found.next_id.is_some();
    let rows = found
        .items
        .into_iter()
        .map(|namespace| (namespace.id.to_string(), namespace.name, namespace.id.to_string()));
    Ok(ResultGroup::new(request, "Rate-limit namespaces", "/ratelimits", paging, has_more, rows))
}

async fn search_rbac(
    request: &WorkspaceRequest,
    paging: &Paging,
) -> Result<[ResultGroup; 2], Error> {
    let context = &request.page_request.app.context;
    let roles = rbac::list_roles(context, &request.caller, paging).await?;
    let permissions = rbac::list_permissions(context, &request.caller, paging).await?;
    let (more_roles, more_permissions) = (roles.next_id.is_some(), permissions.next_id.is_some());
    let roles = roles
        .items
        .into_iter()
        .map(|role| (role.id.to_string(), role.name, role.description.unwrap_or_default()));
    let permissions = permissions.items.into_iter().map(|permission| {
        (permission.id.to_string(), permission.slug, permission.description.unwrap_or_default())
    });
    Ok([
        ResultGroup::new(request, "Roles", "/roles", paging, more_roles, roles),
        ResultGroup::new(
            request,
            "Permissions",
            "/permissions",
            paging,
            more_permissions,
            permissions,
        ),
    ])
}

async fn search_root_keys(
    request: &WorkspaceRequest,
    paging: &Paging,
) -> Result<Option<ResultGroup>, Error> {
    if !is_allowed(request, Action::ReadRootKey) {
        return Ok(None);
    }
    let context = &request.page_request.app.context;
    let found = root_keys::list_for_caller(context, &request.caller, false, paging).await?;
    let has_more = found.next_id.is_some();
    let rows = found.items.into_iter().map(|stored| {
        let name = stored.key.name.unwrap_or_else(|| "Unnamed".into());
        (stored.key.id.to_string(), name, format!("{}…", stored.key.start))
    });
    Ok(Some(ResultGroup::new(request, "Root keys", "/root-keys", paging, has_more, rows)))
}
