use domain::gateways;

use super::policy::PolicyIdOrName;
use crate::prelude::*;
use crate::schemas::Empty;

/// Delete a gateway policy.
///
/// Its gateways are refused from now on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeletePolicy {
    /// The id or name of the policy.
    pub policy_id: PolicyIdOrName,
}

impl Operation for DeletePolicy {
    const NAME: &'static str = "gateways.deletePolicy";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeleteGatewayPolicy]);
    const WRITES: bool = true;
    type Reply = Empty;

    fn example() -> Value {
        json!({ "policyId": example::GATEWAY_POLICY })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Empty> {
        gateways::delete(&app.context, caller, self.policy_id.as_str()).await?;
        Ok(Empty {})
    }
}
