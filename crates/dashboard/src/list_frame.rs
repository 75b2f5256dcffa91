//! The frame of a list: what the template `list_frame.html` shows around the rows of a page.

use domain::permission::Action;

use super::layout::is_allowed;
use super::page_request::WorkspaceRequest;
use super::pagination::PageLinks;
use super::sort_link::SortLink;

/// The template fields that every list shares.
pub struct ListFrame {
    pub workspace: String,
    /// The path of the list, to which the search form is submitted.
    pub path: String,
    /// The search term; empty if all rows are listed.
    pub search: String,
    pub pages: PageLinks,
    /// The path of the form that creates a row; `None` if the user may not create one.
    pub create_path: Option<String>,
    /// What the user may do with each row, besides viewing it.
    pub row_actions: Vec<RowAction>,
    /// The link in the head of the column that the list is sorted by. `None`: the list has another order.
    pub sort: Option<SortLink>,
}

/// An entry in the menu of a row: the page that `path` names below that of the row.
#[derive(Clone, Copy)]
pub struct RowAction {
    pub label: &'static str,
    pub path: &'static str,
    /// What the user must be allowed to do; `None`: to view the row.
    pub needs: Option<Action>,
}

impl ListFrame {
    /// Creates the frame of the list at `path` within the workspace; the next page begins at the cursor `next`.
    pub fn new(request: &WorkspaceRequest, path: &str, next: Option<&str>) -> Self {
        let path = request.workspace_path(path);
        Self {
            workspace: request.membership.workspace_id.to_string(),
            search: request.page_request.query.text("q").to_owned(),
            pages: PageLinks::new(request, &path, next),
            create_path: None,
            row_actions: Vec::new(),
            sort: None,
            path,
        }
    }

    /// Adds the link that reverses the order.
    pub fn with_sort(self, sort: impl Into<Option<SortLink>>) -> Self {
        Self { sort: sort.into(), ..self }
    }

    /// Adds the link to the form at `path` within the workspace, if the user may perform `action`.
    pub fn with_create_form(self, request: &WorkspaceRequest, path: &str, action: Action) -> Self {
        let create_path = is_allowed(request, action).then(|| request.workspace_path(path));
        Self { create_path, ..self }
    }

    /// Adds those of the actions that the user may perform to the menu of each row.
    pub fn with_row_actions(self, request: &WorkspaceRequest, actions: &[RowAction]) -> Self {
        let may = |row: &&RowAction| row.needs.is_none_or(|action| is_allowed(request, action));
        Self { row_actions: actions.iter().filter(may).copied().collect(), ..self }
    }
}
