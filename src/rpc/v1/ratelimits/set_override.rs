use foundation::id::OverrideId;

use super::schemas::namespace;
use crate::domain::ratelimits::overrides::{self, NewOverride};
use crate::rpc::prelude::*;
use crate::rpc::schemas::{DURATION_MIN_MS, Unsigned};

/// Set an override.
///
/// Another limit for an identifier, or for all that match a pattern in which `*`, at most 8 times, stands for any
/// run of characters. One for the same identifier is replaced and keeps its id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetOverride {
    /// Counts where `namespaceName` is given too.
    #[serde(default)]
    pub namespace_id: Optional<Text<0, 512>>,
    #[serde(default)]
    pub namespace_name: Optional<Text<0, 512>>,
    pub identifier: Text<3, 512>,
    /// What may be taken in one window; 0: nothing.
    pub limit: Unsigned,
    /// The window's length in milliseconds.
    pub duration: Int<DURATION_MIN_MS, { i64::MAX }>,
    /// Told again with the override; a check says for itself how it is answered.
    #[serde(default)]
    pub r#async: Optional<bool>,
}

/// The override.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Set {
    override_id: OverrideId,
}

impl Operation for SetOverride {
    const NAME: &'static str = "ratelimits.setOverride";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::SetOverride]);
    const WRITES: bool = true;
    type Reply = Set;

    fn example() -> Value {
        json!({
            "namespaceName": example::NAMESPACE,
            "identifier": "user_5678",
            "limit": 100,
            "duration": 60_000
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Set> {
        let new = NewOverride {
            namespace: namespace(self.namespace_id, self.namespace_name)?,
            identifier: self.identifier.into_string(),
            limit: self.limit.0,
            duration_ms: self.duration.0,
            expires_at: None,
            is_async: self.r#async.unwrap_or(false),
        };
        Ok(Set { override_id: overrides::set(app, caller, new).await? })
    }
}
