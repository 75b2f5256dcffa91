use domain::ratelimits::overrides;

use crate::prelude::*;
use crate::v2::schemas::{NamespaceOrIdentifier, OverrideReply};

/// Get an override.
///
/// Returns the override that currently applies to checks of this identifier, which may be a pattern. Expired overrides
/// are not returned.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetOverride {
    /// A namespace id or name.
    pub namespace: NamespaceOrIdentifier,
    /// An identifier, or a pattern exactly as it was set.
    pub identifier: NamespaceOrIdentifier,
}

impl Operation for GetOverride {
    const NAME: &'static str = "ratelimit.getOverride";
    const ACCESS: AccessRule = AccessRule::HiddenUnlessPermitted(&[Action::ReadOverride]);
    type Reply = OverrideReply;

    fn example() -> Value {
        json!({ "namespace": example::NAMESPACE_ID, "identifier": "user_1234" })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<OverrideReply> {
        let namespace = self.namespace.into_string();
        Ok(overrides::get(&app.ratelimits, caller, namespace, self.identifier.as_str())
            .await?
            .into())
    }
}
