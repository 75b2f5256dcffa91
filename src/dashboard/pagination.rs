//! Pagination of lists.

use super::page_request::WorkspaceRequest;
use crate::domain::page::Paging;

/// The number of rows per page.
pub const PAGE: usize = 25;

/// Reads the cursor and the search term from the query.
pub fn paging(request: &WorkspaceRequest) -> Paging {
    let query = &request.visit.query;
    Paging { from: query.text("from").to_owned(), limit: PAGE, search: query.text("q").to_owned() }
}

/// Links to the first and the next page of a list, with the same filters.
pub struct Pages {
    /// The first page; `None` if it is the current one.
    pub first: Option<String>,
    /// The next page; `None` if the current one is the last.
    pub next: Option<String>,
}

impl Pages {
    /// Creates the links of the list at `path`; the next page begins at the cursor `next`.
    pub fn new(request: &WorkspaceRequest, path: &str, next: Option<&str>) -> Self {
        Self::by(request, path, "from", next)
    }

    /// Creates the links of a list with the cursor in the query parameter `field`.
    pub fn by(request: &WorkspaceRequest, path: &str, field: &str, next: Option<&str>) -> Self {
        let query = &request.visit.query;
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
