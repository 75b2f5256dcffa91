use crate::domain::ratelimits::overrides;
use crate::rpc::prelude::*;
use crate::rpc::v2::schemas::{LimitedName, OverrideReply};

/// Get an override.
///
/// The one that a check of this identifier would find now, which may be a pattern. One that has
/// expired is not found.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetOverride {
    /// The id or the name of a namespace.
    pub namespace: LimitedName,
    /// An identifier, or a pattern as it was set.
    pub identifier: LimitedName,
}

impl Operation for GetOverride {
    const NAME: &'static str = "ratelimit.getOverride";
    const NEEDS: AccessRule = AccessRule::HiddenUnlessPermitted(&[Action::ReadOverride]);
    type Reply = OverrideReply;

    fn example() -> Value {
        json!({ "namespace": example::NAMESPACE_ID, "identifier": "user_1234" })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<OverrideReply> {
        let namespace = self.namespace.into_string();
        Ok(overrides::get(app, caller, namespace, self.identifier.as_str()).await?.into())
    }
}
