use domain::gateways;

use super::policy::{PolicyIdOrName, PolicyReply};
use crate::prelude::*;

/// Get a gateway policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetPolicy {
    /// The id or name of the policy.
    pub policy_id: PolicyIdOrName,
}

impl Operation for GetPolicy {
    const NAME: &'static str = "gateways.getPolicy";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadGatewayPolicy]);
    type Reply = PolicyReply;

    fn example() -> Value {
        json!({ "policyId": example::GATEWAY_POLICY })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<PolicyReply> {
        Ok(gateways::get(&app.context, caller, self.policy_id.as_str()).await?.into())
    }
}
