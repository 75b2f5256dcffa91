//! Schema types of operations on overrides.

use foundation::error::{Error, Result};
use foundation::id::OverrideId;
use foundation::model;

use crate::prelude::*;
use crate::v1::schemas::non_empty;

/// Returns the namespace id or name of a request. The id takes precedence.
pub fn parse_namespace(id: Optional<Text<0, 512>>, name: Optional<Text<0, 512>>) -> Result<String> {
    non_empty(id).or_else(|| non_empty(name)).ok_or_else(|| {
        Error::invalid("namespaceId", "You must provide a namespaceId or a namespaceName")
    })
}

/// An override, which replaces the limit and duration of matching checks.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct OverrideReply {
    id: OverrideId,
    identifier: String,
    limit: i64,
    /// The window length in milliseconds.
    duration: i64,
    r#async: bool,
}

impl From<model::Override> for OverrideReply {
    fn from(stored: model::Override) -> Self {
        Self {
            id: stored.id,
            identifier: stored.identifier,
            limit: stored.limit,
            duration: stored.duration_ms,
            r#async: stored.is_approximate,
        }
    }
}
