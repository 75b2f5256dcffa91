//! The link in the head of a column that reverses the order of a list.

use domain::page::{KeyOrder, PageOrder, Paging};

use super::page_request::WorkspaceRequest;
use super::pagination::paging_from_query;

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
    pub is_default: bool,
    /// The first page in the other direction, with the same filters.
    pub path: String,
}

impl SortLink {
    /// Reads the direction of a list by name at `path` within the workspace, and its page.
    pub fn by_name(request: &WorkspaceRequest, path: &str) -> (Self, Paging) {
        let sort = Self::new(request, &request.workspace_path(path), Direction::Ascending);
        let order = match sort.direction {
            Direction::Ascending => PageOrder::ByName,
            Direction::Descending => PageOrder::ByNameDescending,
        };
        (sort, Paging { order, ..paging_from_query(request) })
    }

    /// Returns the value of the query parameter, if the direction is not the default one.
    pub fn field_value(&self) -> Option<&'static str> {
        (!self.is_default).then(|| self.direction.as_str())
    }

    /// Returns the order of a list by creation.
    pub fn key_order(&self) -> KeyOrder {
        match self.direction {
            Direction::Ascending => KeyOrder::OldestFirst,
            Direction::Descending => KeyOrder::LatestFirst,
        }
    }

    /// Reads the direction of the list at `path` from the query; any other text is `default`.
    pub fn new(request: &WorkspaceRequest, path: &str, default: Direction) -> Self {
        Self::with_cursor_field(request, path, "from", default)
    }

    /// Reads the direction of a list with the cursor in the query parameter `field`, like [`Self::new`].
    pub fn with_cursor_field(
        request: &WorkspaceRequest,
        path: &str,
        field: &str,
        default: Direction,
    ) -> Self {
        let query = &request.page_request.query;
        let known = [Direction::Ascending, Direction::Descending];
        let named = known.into_iter().find(|known| known.as_str() == query.text(FIELD));
        let direction = named.unwrap_or(default);
        let mut pairs = query.query_without(&[FIELD, field, "notice"]);
        if direction.reversed() != default {
            pairs.append_pair(FIELD, direction.reversed().as_str());
        }
        let query = pairs.finish();
        let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        Self { direction, is_default: direction == default, path }
    }
}
