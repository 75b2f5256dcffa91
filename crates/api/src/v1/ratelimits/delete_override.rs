use domain::ratelimits::overrides;

use super::schemas::parse_namespace;
use crate::prelude::*;
use crate::reply::EmptyReply;
use crate::v1::schemas::IdOrName;

/// Delete an override.
///
/// The override is the one that was set for exactly this identifier or pattern.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteOverride {
    /// The namespace id. It takes precedence over `namespaceName`.
    #[serde(default)]
    pub namespace_id: Optional<Text<0, 512>>,
    #[serde(default)]
    pub namespace_name: Optional<Text<0, 512>>,
    pub identifier: IdOrName,
}

impl Operation for DeleteOverride {
    const NAME: &'static str = "ratelimits.deleteOverride";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeleteOverride]);
    const WRITES: bool = true;
    type Reply = EmptyReply;

    fn example() -> Value {
        json!({ "namespaceName": example::NAMESPACE, "identifier": example::OVERRIDE })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<EmptyReply> {
        let namespace = parse_namespace(self.namespace_id, self.namespace_name)?;
        overrides::delete(&app.context, caller, &namespace, self.identifier.as_str()).await?;
        Ok(EmptyReply)
    }
}
