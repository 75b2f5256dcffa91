//! Lists, page by page.

use crate::store::{Listing, searchable};

/// Which page is asked for.
#[derive(Debug, Clone, Default)]
pub struct Paging {
    /// The id at which the page begins. Empty: the first page.
    pub from: String,
    /// How many it may have.
    pub limit: usize,
    /// What is searched for, in whatever case, without the spaces around it. Empty: nothing.
    pub search: String,
}

impl Paging {
    /// The rows to read.
    pub fn listing(&self) -> Listing<'_> {
        let search = searchable([self.search.trim()]);
        Listing { from: &self.from, search, limit: self.look_ahead() }
    }

    /// How many rows to read: one more than is told, which says whether there is another page.
    pub fn look_ahead(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX).saturating_add(1)
    }
}

/// A page of a list that goes by id.
#[derive(Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// The id at which the next page begins, if there is one.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// From the rows that [`Paging::look_ahead`] asks for.
    pub fn new<I: AsRef<str>>(mut rows: Vec<T>, paging: &Paging, id: impl Fn(&T) -> &I) -> Self {
        let next = rows.get(paging.limit).map(|row| id(row).as_ref().to_owned());
        rows.truncate(paging.limit);
        Self { items: rows, next }
    }

    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(f).collect(), next: self.next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_that_was_read_ahead_is_told_as_the_beginning_of_the_next_page() {
        let page = |ids: &[&'static str]| {
            let paging = Paging { limit: 2, ..Paging::default() };
            Page::new(ids.to_vec(), &paging, |id| id)
        };

        assert_eq!(page(&["a", "b"]), Page { items: vec!["a", "b"], next: None });
        assert_eq!(page(&["a", "b", "c"]), Page { items: vec!["a", "b"], next: Some("c".into()) });
    }
}
