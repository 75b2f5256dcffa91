//! What operations on overrides take or give back.

use foundation::error::{Error, Result};
use foundation::id::OverrideId;
use foundation::model;

use crate::rpc::prelude::*;

/// The namespace that a request names; the id counts.
pub fn namespace(id: Optional<Text<0, 512>>, name: Optional<Text<0, 512>>) -> Result<String> {
    let given =
        |text: Optional<Text<0, 512>>| text.0.map(Text::into_string).filter(|t| !t.is_empty());
    given(id).or_else(|| given(name)).ok_or_else(|| {
        Error::invalid("namespaceId", "You must provide a namespaceId or a namespaceName")
    })
}

/// A limit that stands in for the one given with a check.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct OverrideReply {
    id: OverrideId,
    identifier: String,
    limit: i64,
    /// Milliseconds.
    duration: i64,
    r#async: bool,
}

impl From<model::Override> for OverrideReply {
    fn from(known: model::Override) -> Self {
        Self {
            id: known.id,
            identifier: known.identifier,
            limit: known.limit,
            duration: known.duration_ms,
            r#async: known.is_async,
        }
    }
}
