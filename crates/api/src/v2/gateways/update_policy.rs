use domain::gateways::{self, GatewayPolicyChange};

use super::policy::{
    AllowFrom, ApiIds, AuthorizationServers, IdentityHeaderFields, KeySources, Namespaces,
    OnFailure, PolicyIdOrName, PolicyName, PolicyReply, ResourceUrl, Rules, to_api_ids,
    to_key_sources, to_namespaces, to_networks, to_rules,
};
use crate::prelude::*;
use crate::schemas::into_strings;

/// Update a gateway policy.
///
/// Omitted fields keep their values; a field replaces the whole stored one. The reply contains the complete policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdatePolicy {
    /// The id or name of the policy.
    pub policy_id: PolicyIdOrName,
    #[serde(default)]
    pub name: Optional<PolicyName>,
    #[serde(default)]
    pub api_ids: Optional<ApiIds>,
    #[serde(default)]
    pub key_from: Optional<KeySources>,
    #[serde(default)]
    pub rules: Optional<Rules>,
    #[serde(default)]
    pub identity_headers: Optional<Object<IdentityHeaderFields>>,
    #[serde(default)]
    pub on_failure: Optional<OneOf<OnFailure>>,
    #[serde(default)]
    pub allow_from: Optional<AllowFrom>,
    #[serde(default)]
    pub namespaces: Optional<Namespaces>,
    /// Empty: no metadata is published.
    #[serde(default)]
    pub resource: Optional<ResourceUrl>,
    #[serde(default)]
    pub authorization_servers: Optional<AuthorizationServers>,
}

impl Operation for UpdatePolicy {
    const NAME: &'static str = "gateways.updatePolicy";
    const ACCESS: AccessRule =
        AccessRule::Permission(&[Action::UpdateGatewayPolicy, Action::VerifyKey]);
    const WRITES: bool = true;
    type Reply = PolicyReply;

    fn example() -> Value {
        json!({ "policyId": example::GATEWAY_POLICY, "keyFrom": ["header:x-api-key"] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<PolicyReply> {
        let change = GatewayPolicyChange {
            name: self.name.0.map(Text::into_string),
            api_ids: self.api_ids.0.map(to_api_ids),
            key_from: self.key_from.0.map(to_key_sources).transpose()?,
            rules: self.rules.0.map(to_rules),
            identity_headers: self.identity_headers.0.map(|Object(fields)| fields.into()),
            on_failure: self.on_failure.0.map(|format| format.0.into()),
            allow_from: self.allow_from.0.map(to_networks).transpose()?,
            namespaces: self.namespaces.0.map(to_namespaces),
            resource: self.resource.0.map(Text::into_string),
            authorization_servers: self.authorization_servers.0.map(into_strings),
        };
        let policy = self.policy_id.as_str();
        Ok(gateways::update(&app.context, caller, policy, change).await?.into())
    }
}
