//! Schema types of operations on permissions and roles.

use domain::page::{Page, Paging};
use foundation::error::{Error, Result};
use foundation::id::RoleId;
use foundation::model;

use crate::bounds::CharSet;
use crate::prelude::*;

/// The name or slug of a permission.
pub type Identifier = Text<3, 256, IdentifierChars>;
/// A description, which may be empty.
pub type Description = Text<0, 256>;

/// Allows letters, digits, `_`, `.`, `:` and `-`.
#[derive(Debug)]
pub struct IdentifierChars;

impl CharSet for IdentifierChars {
    const PATTERN: &'static str = "^[a-zA-Z0-9_.:-]+$";
    fn contains(c: char) -> bool {
        c.is_ascii_alphanumeric() || "_.:-".contains(c)
    }
}

/// Validates a description. Returns `None` if it is empty.
pub fn validate_description(description: Optional<Description>) -> Result<Option<String>> {
    let text = description.0.map(Text::into_string).filter(|text| !text.is_empty());
    match text {
        Some(text) if text.chars().count() < 3 => Err(Error::invalid(
            "description",
            "description: String must contain at least 3 character(s), or none",
        )),
        text => Ok(text),
    }
}

/// A named set of permissions.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct RoleReply {
    id: RoleId,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

impl From<model::Role> for RoleReply {
    fn from(role: model::Role) -> Self {
        Self { id: role.id, name: role.name, description: role.description }
    }
}

impl From<model::RoleSummary> for RoleReply {
    fn from(role: model::RoleSummary) -> Self {
        Self { id: role.id, name: role.name, description: role.description }
    }
}

/// Lists all items of a list that version 1 does not page.
pub async fn list_all<T, F>(page: impl Fn(Paging) -> F) -> Result<Vec<T>>
where
    F: Future<Output = Result<Page<T>>>,
{
    let mut paging = Paging { limit: LIST_ALL_PAGE_SIZE, ..Paging::default() };
    let mut all = Vec::new();
    loop {
        let Page { items, next_start: next } = page(paging.clone()).await?;
        all.extend(items);
        match next {
            Some(next) if all.len() < LIST_ALL_MAX => paging.start = next,
            _ => return Ok(all),
        }
    }
}

/// The number of items that are read at once of a list that is not paged.
const LIST_ALL_PAGE_SIZE: usize = 1000;
/// The maximum number of items in the reply of a list that is not paged.
const LIST_ALL_MAX: usize = 100_000;
