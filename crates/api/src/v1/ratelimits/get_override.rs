use domain::ratelimits::overrides;

use super::schemas::{OverrideReply, parse_namespace};
use crate::prelude::*;
use crate::v1::schemas::IdOrName;

/// Get an override.
///
/// The override is the one that was set for exactly this identifier or pattern.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetOverride {
    /// The namespace id. It takes precedence over `namespaceName`.
    #[serde(default)]
    pub namespace_id: Optional<Text<0, 512>>,
    #[serde(default)]
    pub namespace_name: Optional<Text<0, 512>>,
    pub identifier: IdOrName,
}

impl Operation for GetOverride {
    const NAME: &'static str = "ratelimits.getOverride";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadOverride]);
    type Reply = OverrideReply;

    fn example() -> Value {
        json!({ "namespaceName": example::NAMESPACE, "identifier": example::OVERRIDE })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<OverrideReply> {
        let namespace = parse_namespace(self.namespace_id, self.namespace_name)?;
        let found =
            overrides::get_exact(&app.context, caller, &namespace, self.identifier.as_str())
                .await?;
        Ok(found.into())
    }
}
