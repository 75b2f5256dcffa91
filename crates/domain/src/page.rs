//! Pagination of lists.

pub use store::PageOrder;
use store::{PageQuery, to_search_text};

/// The bound up to which resources are counted for a dashboard page.
pub const COUNT_MAX: i64 = 10_000;

/// The bytes of its items that end a page before it has as many as its limit. It has at least one item.
pub const PAGE_BYTES_MAX: i64 = 8 * 1024 * 1024;

/// The parameters of a page.
#[derive(Debug, Clone, Default)]
pub struct Paging {
    /// The id or the name at which the page starts, as the order has it. Empty: the first page.
    pub start: String,
    pub order: PageOrder,
    /// The maximum number of items.
    pub limit: usize,
    /// The search text, matched case-insensitively without surrounding spaces. Empty: no filter.
    pub search: String,
}

/// A character that sorts before every character of an id.
const ID_LOWER_BOUND: char = '!';

impl Paging {
    /// Returns the first page of a list by name.
    pub fn first_by_name(limit: usize) -> Self {
        Self { order: PageOrder::ByName, limit, ..Self::default() }
    }

    /// Returns the page that starts after an id. Empty: the first page.
    pub fn after_id(id: &str, limit: usize) -> Self {
        let from = if id.is_empty() { String::new() } else { format!("{id}{ID_LOWER_BOUND}") };
        Self { start: from, limit, ..Self::default() }
    }

    /// Returns the store query of this page, with one extra row.
    pub fn to_page_query(&self) -> PageQuery<'_> {
        let search = to_search_text([self.search.trim()]);
        let rows_max = self.limit_with_lookahead();
        PageQuery { start: &self.start, order: self.order, search, rows_max }
    }

    /// Returns this page with no more items than [`PAGE_BYTES_MAX`] allows. `sizes` are the bytes of its items.
    pub fn within_bytes(&self, sizes: &[i64]) -> Self {
        let mut total = 0_i64;
        let fits = |size: &&i64| {
            total = total.saturating_add(**size);
            total <= PAGE_BYTES_MAX
        };
        let fitting = sizes.iter().take_while(fits).count();
        let limit = if fitting < sizes.len() { fitting.max(1).min(self.limit) } else { self.limit };
        Self { limit, ..self.clone() }
    }

    /// Returns the number of rows to read: one more than the page has, to detect a next page.
    pub fn limit_with_lookahead(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX).saturating_add(1)
    }
}

/// The order of a list of keys, of root keys, or of migrations, by their creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyOrder {
    #[default]
    LatestFirst,
    OldestFirst,
}

/// A page of a list.
#[derive(Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// The id or the name at which the next page starts, if there is one.
    pub next_start: Option<String>,
}

impl<T> Page<T> {
    /// Creates a page from the rows that were read with the limit of [`Paging::limit_with_lookahead`].
    pub fn new<I: AsRef<str>>(rows: Vec<T>, paging: &Paging, start: impl Fn(&T) -> &I) -> Self {
        Self::with_start(rows, paging, |row| start(row).as_ref().to_owned())
    }

    /// Creates a page whose next one starts at a text that `start` makes of a row, like [`Self::new`].
    pub fn with_start(mut rows: Vec<T>, paging: &Paging, start: impl Fn(&T) -> String) -> Self {
        let next = rows.get(paging.limit).map(start);
        rows.truncate(paging.limit);
        Self { items: rows, next_start: next }
    }

    /// Creates a page of a list in the order of `paging`, like [`Self::new`].
    pub fn in_order<I: AsRef<str>, N: AsRef<str>>(
        rows: Vec<T>,
        paging: &Paging,
        id: impl Fn(&T) -> &I,
        name: impl Fn(&T) -> &N,
    ) -> Self {
        match paging.order {
            PageOrder::ById => Self::new(rows, paging, id),
            PageOrder::ByName | PageOrder::ByNameDescending => Self::new(rows, paging, name),
        }
    }

    /// Returns the id of the last item if there is a next page.
    pub fn find_last_id<I: AsRef<str>>(&self, id: impl Fn(&T) -> &I) -> Option<String> {
        self.next_start.as_ref()?;
        self.items.last().map(|last| id(last).as_ref().to_owned())
    }

    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(f).collect(), next_start: self.next_start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_after_id_starts_at_next_greater_id() {
        let after = Paging::after_id("key_9z", 2).start;

        for earlier in ["key_9z", "key_9y", "key_9"] {
            assert!(*earlier < *after, "{earlier}");
        }
        for next in ["key_9z1", "key_9zz", "key_A", "key_a"] {
            assert!(*after < *next, "{next}");
        }
        assert_eq!(Paging::after_id("", 2).start, "");
    }

    #[test]
    fn page_ends_early_when_its_items_have_too_many_bytes() {
        let limit =
            |limit, sizes: &[i64]| Paging { limit, ..Paging::default() }.within_bytes(sizes).limit;
        let third = PAGE_BYTES_MAX / 3;

        assert_eq!(limit(10, &[]), 10);
        assert_eq!(limit(10, &[PAGE_BYTES_MAX]), 10);
        assert_eq!(limit(10, &[third; 3]), 10);
        assert_eq!(limit(10, &[third; 4]), 3);
        assert_eq!(limit(10, &[third + 1; 4]), 2);
        assert_eq!(limit(3, &[third; 4]), 3, "the last one is of the next page");
        assert_eq!(limit(10, &[PAGE_BYTES_MAX + 1, 1]), 1);
        assert_eq!(limit(10, &[i64::MAX, i64::MAX]), 1);
    }

    #[test]
    fn last_returns_id_when_next_page_exists() {
        let page =
            |next: Option<&str>| Page { items: vec!["a", "b"], next_start: next.map(Into::into) };

        assert_eq!(page(Some("c")).find_last_id(|id| id), Some("b".to_owned()));
        assert_eq!(page(None).find_last_id(|id| id), None);
    }

    #[test]
    fn page_returns_extra_row_as_next_start_when_more_rows_exist() {
        let page = |ids: &[&'static str]| {
            let paging = Paging { limit: 2, ..Paging::default() };
            Page::new(ids.to_vec(), &paging, |id| id)
        };

        assert_eq!(page(&["a", "b"]), Page { items: vec!["a", "b"], next_start: None });
        assert_eq!(
            page(&["a", "b", "c"]),
            Page { items: vec!["a", "b"], next_start: Some("c".into()) }
        );
    }
}
