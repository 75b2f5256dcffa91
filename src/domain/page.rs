//! Lists, page by page.

use store::{PageQuery, searchable};

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

/// Sorts before whatever an id is made of.
const BEFORE_IDS: char = '!';

impl Paging {
    /// The page that begins behind an id. Empty: the first page.
    pub fn after(id: &str, limit: usize) -> Self {
        let from = if id.is_empty() { String::new() } else { format!("{id}{BEFORE_IDS}") };
        Self { from, limit, search: String::new() }
    }

    /// The rows to read.
    pub fn listing(&self) -> PageQuery<'_> {
        let search = searchable([self.search.trim()]);
        PageQuery { from: &self.from, search, limit: self.look_ahead() }
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

    /// The id of the last one, if there is another page behind it.
    pub fn last<I: AsRef<str>>(&self, id: impl Fn(&T) -> &I) -> Option<String> {
        self.next.as_ref()?;
        self.items.last().map(|last| id(last).as_ref().to_owned())
    }

    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(f).collect(), next: self.next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_an_id_come_all_that_are_greater() {
        let after = Paging::after("key_9z", 2).from;

        for known in ["key_9z", "key_9y", "key_9"] {
            assert!(*known < *after, "{known}");
        }
        for next in ["key_9z1", "key_9zz", "key_A", "key_a"] {
            assert!(*after < *next, "{next}");
        }
        assert_eq!(Paging::after("", 2).from, "");
    }

    #[test]
    fn the_last_of_a_page_is_told_where_there_is_another_behind_it() {
        let page = |next: Option<&str>| Page { items: vec!["a", "b"], next: next.map(Into::into) };

        assert_eq!(page(Some("c")).last(|id| id), Some("b".to_owned()));
        assert_eq!(page(None).last(|id| id), None);
    }

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
