use domain::ratelimits::overrides;

use crate::prelude::*;
use crate::schemas::Empty;
use crate::v2::schemas::NamespaceOrIdentifier;

/// Delete an override.
///
/// The change is immediate: checks use their own limit and duration, or those of another matching override.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteOverride {
    /// A namespace id or name.
    pub namespace: NamespaceOrIdentifier,
    /// The identifier or pattern, exactly as it was set.
    pub identifier: NamespaceOrIdentifier,
}

impl Operation for DeleteOverride {
    const NAME: &'static str = "ratelimit.deleteOverride";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeleteOverride]);
    const WRITES: bool = true;
    type Reply = Empty;

    fn example() -> Value {
        json!({ "namespace": example::NAMESPACE_ID, "identifier": example::OVERRIDE })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Empty> {
        overrides::delete(&app.context, caller, self.namespace.as_str(), self.identifier.as_str())
            .await?;
        Ok(Empty {})
    }
}
