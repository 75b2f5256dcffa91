//! Pagination of lists that are sorted by id.

use store::{PageQuery, to_search_text};

/// The bound up to which resources are counted for a dashboard page.
pub const COUNT_MAX: i64 = 10_000;

/// The parameters of a page.
#[derive(Debug, Clone, Default)]
pub struct Paging {
    /// The id at which the page starts. Empty: the first page.
    pub start_id: String,
    /// The maximum number of items.
    pub limit: usize,
    /// The search text, matched case-insensitively without surrounding spaces. Empty: no filter.
    pub search: String,
}

/// A character that sorts before every character of an id.
const ID_LOWER_BOUND: char = '!';

impl Paging {
    /// Returns the page that starts after an id. Empty: the first page.
    pub fn after_id(id: &str, limit: usize) -> Self {
        let from = if id.is_empty() { String::new() } else { format!("{id}{ID_LOWER_BOUND}") };
        Self { start_id: from, limit, search: String::new() }
    }

    /// Returns the store query of this page, with one extra row.
    pub fn to_page_query(&self) -> PageQuery<'_> {
        let search = to_search_text([self.search.trim()]);
        PageQuery { start_id: &self.start_id, search, rows_max: self.limit_with_lookahead() }
    }

    /// Returns the number of rows to read: one more than the page has, to detect a next page.
    pub fn limit_with_lookahead(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX).saturating_add(1)
    }
}

/// A page of a list that is sorted by id.
#[derive(Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// The id at which the next page starts, if there is one.
    pub next_id: Option<String>,
}

impl<T> Page<T> {
    /// Creates a page from the rows that were read with the limit of [`Paging::limit_with_lookahead`].
    pub fn new<I: AsRef<str>>(mut rows: Vec<T>, paging: &Paging, id: impl Fn(&T) -> &I) -> Self {
        let next = rows.get(paging.limit).map(|row| id(row).as_ref().to_owned());
        rows.truncate(paging.limit);
        Self { items: rows, next_id: next }
    }

    /// Returns the id of the last item if there is a next page.
    pub fn find_last_id<I: AsRef<str>>(&self, id: impl Fn(&T) -> &I) -> Option<String> {
        self.next_id.as_ref()?;
        self.items.last().map(|last| id(last).as_ref().to_owned())
    }

    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(f).collect(), next_id: self.next_id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_after_id_starts_at_next_greater_id() {
        let after = Paging::after_id("key_9z", 2).start_id;

        for earlier in ["key_9z", "key_9y", "key_9"] {
            assert!(*earlier < *after, "{earlier}");
        }
        for next in ["key_9z1", "key_9zz", "key_A", "key_a"] {
            assert!(*after < *next, "{next}");
        }
        assert_eq!(Paging::after_id("", 2).start_id, "");
    }

    #[test]
    fn last_returns_id_when_next_page_exists() {
        let page =
            |next: Option<&str>| Page { items: vec!["a", "b"], next_id: next.map(Into::into) };

        assert_eq!(page(Some("c")).find_last_id(|id| id), Some("b".to_owned()));
        assert_eq!(page(None).find_last_id(|id| id), None);
    }

    #[test]
    fn page_returns_extra_row_as_next_id_when_more_rows_exist() {
        let page = |ids: &[&'static str]| {
            let paging = Paging { limit: 2, ..Paging::default() };
            Page::new(ids.to_vec(), &paging, |id| id)
        };

        assert_eq!(page(&["a", "b"]), Page { items: vec!["a", "b"], next_id: None });
        assert_eq!(
            page(&["a", "b", "c"]),
            Page { items: vec!["a", "b"], next_id: Some("c".into()) }
        );
    }
}
