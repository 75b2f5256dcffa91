//! Pagination of lists.

use domain::page::{PageOrder, Paging};

use super::page_request::WorkspaceRequest;

/// The number of rows per page.
pub const PAGE_ROWS: usize = 25;

/// Reads the cursor and the search term from the query.
pub fn paging_from_query(request: &WorkspaceRequest) -> Paging {
    let query = &request.page_request.query;
    Paging {
        start: query.text("from").to_owned(),
        order: PageOrder::ById,
        limit: PAGE_ROWS,
        search: query.text("q").to_owned(),
    }
}

/// Links to the first and the next page of a list, with the same filters.
pub struct PageLinks {
    /// The first page; `None` if it is the current one.
    pub first: Option<String>,
    /// The next page; `None` if the current one is the last.
    pub next: Option<String>,
}

impl PageLinks {
    /// Creates the links of the list at `path`; the next page begins at the cursor `next`.
    pub fn new(request: &WorkspaceRequest, path: &str, next: Option<&str>) -> Self {
        Self::with_cursor_field(request, path, "from", next)
    }

    /// Creates the links of a list with the cursor in the query parameter `field`.
    pub fn with_cursor_field(
        request: &WorkspaceRequest,
        path: &str,
        field: &str,
        next: Option<&str>,
    ) -> Self {
        let query = &request.page_request.query;
        let to = |from: Option<&str>| {
            let mut pairs = query.query_without(&[field, "notice"]);
            if let Some(from) = from {
                pairs.append_pair(field, from);
            }
            format!("{path}?{}", pairs.finish())
        };
        let is_first = query.text(field).is_empty();
        Self { first: (!is_first).then(|| to(None)), next: next.map(|next| to(Some(next))) }
    }
}
