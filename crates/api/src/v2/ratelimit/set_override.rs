use domain::ratelimits::overrides::{self, NewOverride};
use foundation::clock::Timestamp;
use foundation::id::OverrideId;

use crate::prelude::*;
use crate::schemas::{UnsignedInt, WindowLength};
use crate::v2::schemas::{Expires, NamespaceOrIdentifier};

/// Set an override.
///
/// Checks of this identifier then use this limit and duration instead of the requested ones. An existing override for
/// the same identifier is replaced and keeps its id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetOverride {
    /// A namespace id or name.
    pub namespace: NamespaceOrIdentifier,
    /// An identifier, or a pattern in which `*`, at most 8 times, matches any sequence of characters. An exact
    /// identifier takes precedence over patterns. Of several patterns, the one with the longest literal part applies,
    /// then the older one. Each identifier that matches a pattern has its own counter.
    pub identifier: NamespaceOrIdentifier,
    /// The maximum total cost per window. 0 rejects every check.
    pub limit: UnsignedInt,
    /// The window length in milliseconds.
    pub duration: WindowLength,
    /// The expiry time in Unix milliseconds. Default: the override does not expire.
    #[serde(default)]
    pub expires: Optional<Expires>,
}

/// The override that was set.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetOverrideReply {
    override_id: OverrideId,
}

impl Operation for SetOverride {
    const NAME: &'static str = "ratelimit.setOverride";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::SetOverride]);
    const WRITES: bool = true;
    type Reply = SetOverrideReply;

    fn example() -> Value {
        json!({
            "namespace": example::NAMESPACE_ID,
            "identifier": "*@example.com",
            "limit": 1000,
            "duration": 60_000
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<SetOverrideReply> {
        let override_id = overrides::set(&app.context, caller, self.into()).await?;
        Ok(SetOverrideReply { override_id })
    }
}

impl From<SetOverride> for NewOverride {
    fn from(request: SetOverride) -> Self {
        Self {
            is_async: false,
            namespace: request.namespace.into_string(),
            identifier: request.identifier.into_string(),
            limit: request.limit.0,
            duration_ms: request.duration.0,
            expires_at: request.expires.0.map(|expires| Timestamp(expires.0)),
        }
    }
}
