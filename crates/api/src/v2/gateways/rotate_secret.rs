use domain::gateways::{self, SECRET_GRACE_MAX_MS};

use super::policy::{PolicyIdOrName, SecretReply};
use crate::prelude::*;

/// Rotate the secret of a gateway policy.
///
/// The reply contains the new secret. The previous one stays valid for `expiration`, so that gateways can be
/// reconfigured one after another.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateSecret {
    /// The id or name of the policy.
    pub policy_id: PolicyIdOrName,
    /// How long the previous secret stays valid, in milliseconds. Default: 0.
    #[serde(default)]
    pub expiration: Optional<Int<0, SECRET_GRACE_MAX_MS>>,
}

impl Operation for RotateSecret {
    const NAME: &'static str = "gateways.rotateSecret";
    const ACCESS: AccessRule =
        AccessRule::Permission(&[Action::UpdateGatewayPolicy, Action::VerifyKey]);
    const WRITES: bool = true;
    type Reply = SecretReply;

    fn example() -> Value {
        json!({ "policyId": example::GATEWAY_POLICY, "expiration": 3_600_000 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<SecretReply> {
        let (policy, grace_ms) = (self.policy_id.as_str(), self.expiration.0.map_or(0, |ms| ms.0));
        Ok(gateways::rotate_secret(&app.context, caller, policy, grace_ms).await?.into())
    }
}
