//! The link in the head of a column that reverses the order of a list. An index backs both orders.

use super::page_request::WorkspaceRequest;

/// The query parameter of the direction.
const FIELD: &str = "order";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Ascending,
    Descending,
}

impl Direction {
    /// Returns the value of `aria-sort`, and of the query parameter.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ascending => "ascending",
            Self::Descending => "descending",
        }
    }

    fn reversed(self) -> Self {
        match self {
            Self::Ascending => Self::Descending,
            Self::Descending => Self::Ascending,
        }
    }
}

/// The order of a list by a column.
pub struct SortLink {
    /// The current direction.
    pub direction: Direction,
    /// The first page in the other direction, with the same filters.
    pub path: String,
}

impl SortLink {
    /// Reads the direction of the list at `path` from the query; any other text is `default`.
    pub fn new(request: &WorkspaceRequest, path: &str, default: Direction) -> Self {
        let query = &request.page_request.query;
        let known = [Direction::Ascending, Direction::Descending];
        let named = known.into_iter().find(|known| known.as_str() == query.text(FIELD));
        let direction = named.unwrap_or(default);
        let mut pairs = query.query_without(&[FIELD, "from", "from-entry", "notice"]);
        if direction.reversed() != default {
            pairs.append_pair(FIELD, direction.reversed().as_str());
        }
        let query = pairs.finish();
        let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        Self { direction, path }
    }
}
