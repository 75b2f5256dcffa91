//! The links between the pages of a list.

use super::page_request::WorkspaceRequest;
use crate::domain::page::Paging;

/// How many rows a page of a list has.
pub const PAGE: usize = 25;

/// The page of a list that the address asks for, with its search.
pub fn paging(asked: &WorkspaceRequest) -> Paging {
    let query = &asked.visit.query;
    Paging { from: query.text("from").to_owned(), limit: PAGE, search: query.text("q").to_owned() }
}

/// Where the list begins, and where it goes on: the same page with the same search.
pub struct Pages {
    /// Absent: this is the beginning.
    pub first: Option<String>,
    /// Absent: this is the end.
    pub next: Option<String>,
}

impl Pages {
    /// Of the list at `path`, of which the next page begins at `next`.
    pub fn new(asked: &WorkspaceRequest, path: &str, next: Option<&str>) -> Self {
        Self::by(asked, path, "from", next)
    }

    /// As [`Pages::new`], where `field` says in the address at which row a page begins.
    pub fn by(asked: &WorkspaceRequest, path: &str, field: &str, next: Option<&str>) -> Self {
        let query = &asked.visit.query;
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
