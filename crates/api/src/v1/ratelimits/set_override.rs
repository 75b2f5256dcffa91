use domain::ratelimits::overrides::{self, NewOverride};
use foundation::id::OverrideId;

use super::schemas::parse_namespace;
use crate::prelude::*;
use crate::schemas::{UnsignedInt, WindowLength};

/// Set an override.
///
/// Sets a different limit for one identifier, or for all identifiers that match a pattern. A `*` in a pattern, at most
/// 8 times, matches any sequence of characters. An existing override for the same identifier is replaced and keeps its
/// id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetOverride {
    /// The namespace id. It takes precedence over `namespaceName`.
    #[serde(default)]
    pub namespace_id: Optional<Text<0, 512>>,
    #[serde(default)]
    pub namespace_name: Optional<Text<0, 512>>,
    pub identifier: Text<3, 512>,
    /// The maximum total cost per window. 0 rejects every check.
    pub limit: UnsignedInt,
    /// The window length in milliseconds.
    pub duration: WindowLength,
    /// Stored and returned with the override, without effect: each check has its own `async`.
    #[serde(default)]
    pub r#async: Optional<bool>,
}

/// The override that was set.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetOverrideReply {
    override_id: OverrideId,
}

impl Operation for SetOverride {
    const NAME: &'static str = "ratelimits.setOverride";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::SetOverride]);
    const WRITES: bool = true;
    type Reply = SetOverrideReply;

    fn example() -> Value {
        json!({
            "namespaceName": example::NAMESPACE,
            "identifier": "user_5678",
            "limit": 100,
            "duration": 60_000
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<SetOverrideReply> {
        let new = NewOverride {
            namespace: parse_namespace(self.namespace_id, self.namespace_name)?,
            identifier: self.identifier.into_string(),
            limit: self.limit.0,
            duration_ms: self.duration.0,
            expires_at: None,
            is_async: self.r#async.unwrap_or(false),
        };
        Ok(SetOverrideReply { override_id: overrides::set(&app.context, caller, new).await? })
    }
}
