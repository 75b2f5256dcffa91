//! The search over everything in a workspace: its objects, and the pages and actions of the dashboard.
//!
//! The lists submit their searches to it, too, because somebody may paste a full key, which must not get into a URL.
//!
//! The page is also the command palette: a script shows its form in a dialog and sends it while the user types.

mod groups;

use askama::Template;
use axum::Router;
use axum::routing::{get, post};
use domain::page::Paging;
use domain::permission::Action;

use super::failure::Failure;
use super::icons;
use super::keys::{answer_live_search, find_full_key, may_be_full_key};
use super::layout::{Layout, Nav, Section, is_allowed};
use super::page_request::WorkspaceRequest;
use super::{PageResult, redirect_to, render_invalid_page, render_page};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/search", get(show).post(search))
        .route("/dashboard/{workspace}/search/live", post(search_live))
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
    /// Whether the rows are names without details, several of which fit beside each other.
    is_short: bool,
    rows: Vec<ResultRow>,
    /// The list with all results; `None` if these are all. If there are no rows, not everything was searched.
    list_path: Option<String>,
}

struct ResultRow {
    path: String,
    icon: &'static str,
    name: String,
    detail: String,
}

async fn show(request: WorkspaceRequest) -> PageResult {
    let text = request.page_request.query.text("q").trim().to_owned();
    render_page(&build_page(&request, &text).await?)
}

/// Searches everything, or the list that submits the search, or goes to the page of a full key, which must not get into a URL.
async fn search(request: WorkspaceRequest) -> PageResult {
    let text = request.page_request.form.text("q").trim();
    if let Some(path) = find_full_key(&request, text).await? {
        return redirect_to(&path);
    }
    if !may_be_full_key(text) {
        let query = request.page_request.form.query_without(&["csrf", "list"]).finish();
        let list = read_list(&request).unwrap_or_else(|| request.workspace_path("/search"));
        return redirect_to(&format!("{list}?{query}"));
    }
    let page = build_page(&request, text).await?;
    match page.is_unknown {
        true => render_invalid_page(&page),
        false => render_page(&page),
    }
}

/// Searches while the user types. What the palette sends has the same rules as the form.
async fn search_live(request: WorkspaceRequest) -> PageResult {
    let text = request.page_request.form.text("q").trim();
    match find_full_key(&request, text).await? {
        Some(path) => answer_live_search(&path),
        None => render_page(&build_page(&request, text).await?),
    }
}

/// Returns the path of the list that submits the search. Only one of this workspace is accepted.
fn read_list(request: &WorkspaceRequest) -> Option<String> {
    let list = request.page_request.form.text("list");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_".contains(c);
    let is_known = list.starts_with(&request.workspace_path("/")) && list.chars().all(is_plain);
    is_known.then(|| list.to_owned())
}

async fn build_page(request: &WorkspaceRequest, text: &str) -> Result<SearchPage, Failure> {
    let layout = Layout::for_workspace(request, Section::Search, "Search").await?;
    let mut groups = vec![list_pages(layout.nav.as_ref(), text), list_actions(request, text)];
    if !text.is_empty() {
        groups.extend(groups::search(request, text).await?);
    }
    let is_secret = may_be_full_key(text);
    for group in groups.iter_mut().filter(|_| is_secret) {
        group.list_path = None;
    }
    groups.retain(|group| !group.rows.is_empty() || group.list_path.is_some());
    Ok(SearchPage {
        layout,
        path: request.workspace_path("/search"),
        is_searched: !text.is_empty(),
        is_unknown: is_secret && groups.iter().all(|group| group.rows.is_empty()),
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
            icon: "",
            name,
            detail,
        };
        Self {
            title,
            is_short: false,
            rows: rows.map(row).collect(),
            list_path: has_more.then(|| request.workspace_path(&format!("{list}?{query}"))),
        }
    }
}

/// The actions that begin on a page of their own: name, icon, path in the workspace, permission.
const ACTIONS: [(&str, &str, &str, Action); 10] = [
    ("Create API", icons::CREATE, "/apis/new", Action::CreateApi),
    ("Create key", icons::CREATE, "/keys/new", Action::CreateKey),
    ("Create identity", icons::CREATE, "/new-identity", Action::CreateIdentity),
    ("Create permission", icons::CREATE, "/permissions/new", Action::CreatePermission),
    ("Create role", icons::CREATE, "/roles/new", Action::CreateRole),
    ("Create namespace", icons::CREATE, "/ratelimits/new", Action::CreateNamespace),
    ("Create gateway policy", icons::CREATE, "/gateways/new", Action::CreateGatewayPolicy),
    ("Create root key", icons::CREATE, "/root-keys/new", Action::CreateRootKey),
    ("Create import", icons::CREATE, "/imports/new", Action::CreateKey),
    ("Explain a request", icons::SEARCH, "/keys/why", Action::ReadKey),
];

/// Lists the pages of the navigation whose name contains the text.
fn list_pages(nav: Option<&Nav>, text: &str) -> ResultGroup {
    let items = nav.into_iter().flat_map(|nav| &nav.groups).flat_map(|group| &group.items);
    let rows = items.filter(|item| contains(item.label, text)).map(|item| ResultRow {
        path: item.path.clone(),
        icon: item.icon,
        name: item.label.to_owned(),
        detail: String::new(),
    });
    ResultGroup { title: "Pages", is_short: true, rows: rows.collect(), list_path: None }
}

/// Lists the actions that the user may perform and whose name contains the text.
fn list_actions(request: &WorkspaceRequest, text: &str) -> ResultGroup {
    let actions = ACTIONS.into_iter();
    let actions =
        actions.filter(|(name, _, _, action)| contains(name, text) && is_allowed(request, *action));
    let rows = actions.map(|(name, icon, path, _)| ResultRow {
        path: request.workspace_path(path),
        icon,
        name: name.to_owned(),
        detail: String::new(),
    });
    ResultGroup { title: "Actions", is_short: true, rows: rows.collect(), list_path: None }
}

/// Returns whether a name contains a text, in capitals or not.
fn contains(name: &str, text: &str) -> bool {
    name.to_lowercase().contains(&text.to_lowercase())
}
