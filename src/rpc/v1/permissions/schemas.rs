//! What operations on permissions and roles take or give back.

use foundation::error::{Error, Result};
use foundation::id::RoleId;
use foundation::model;

use crate::domain::page::{Page, Paging};
use crate::rpc::bounds::CharSet;
use crate::rpc::prelude::*;

/// What a permission may be called.
pub type Identifier = Text<3, 256, Identifying>;
/// Empty, or a sentence.
pub type Description = Text<0, 256>;

/// Letters, digits, `_`, `.`, `:` and `-`.
#[derive(Debug)]
pub struct Identifying;

impl CharSet for Identifying {
    const PATTERN: &'static str = "^[a-zA-Z0-9_.:-]+$";
    fn has(c: char) -> bool {
        c.is_ascii_alphanumeric() || "_.:-".contains(c)
    }
}

/// A description; an empty one is none.
pub fn described(description: Optional<Description>) -> Result<Option<String>> {
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

/// The whole of a list that version 1 does not page.
pub async fn whole<T, F>(page: impl Fn(Paging) -> F) -> Result<Vec<T>>
where
    F: Future<Output = Result<Page<T>>>,
{
    let mut paging = Paging { limit: WHOLE_PAGE, ..Paging::default() };
    let mut whole = Vec::new();
    loop {
        let Page { items, next } = page(paging.clone()).await?;
        whole.extend(items);
        match next {
            Some(next) if whole.len() < WHOLE_MAX => paging.from = next,
            _ => return Ok(whole),
        }
    }
}

/// How many are read at once of a list that is not paged, and how many are told at most.
const WHOLE_PAGE: usize = 1000;
const WHOLE_MAX: usize = 100_000;
