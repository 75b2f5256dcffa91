use domain::gateways::{self, NewGatewayPolicy};
use foundation::model::{GatewayPolicyConfig, KeySource};

use super::policy::{
    AllowFrom, ApiIds, AuthorizationServers, IdentityHeaderFields, KeySources, Namespaces,
    OnFailure, PolicyName, ResourceUrl, Rules, SecretReply, to_api_ids, to_key_sources,
    to_namespaces, to_networks, to_rules,
};
use crate::prelude::*;
use crate::schemas::into_strings;

/// Create a gateway policy.
///
/// A gateway policy says how the requests that a gateway receives are judged: keys of which APIs are accepted, and what
/// each path requires. The gateway proves itself with the secret in the reply, which can do nothing else.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreatePolicy {
    /// The name of the policy, unique in the workspace: letters, digits, `.`, `_` and `-`.
    pub name: PolicyName,
    /// The APIs whose keys are accepted.
    pub api_ids: ApiIds,
    /// Where the key is read: `authorization:bearer`, `header:<name>`, `query:<name>` or `cookie:<name>`. The first one
    /// that a request has counts. Default: `authorization:bearer` and `header:x-api-key`.
    #[serde(default)]
    pub key_from: Optional<KeySources>,
    /// The first rule that matches a request applies; a request without a matching rule is forbidden. Default: every
    /// request with a valid key passes.
    #[serde(default)]
    pub rules: Optional<Rules>,
    #[serde(default)]
    pub identity_headers: Optional<Object<IdentityHeaderFields>>,
    /// The format of the body of refusals. Default: `problem+json`.
    #[serde(default)]
    pub on_failure: Optional<OneOf<OnFailure>>,
    /// Networks and addresses from which a gateway needs no secret. Default: none.
    #[serde(default)]
    pub allow_from: Optional<AllowFrom>,
    /// Namespaces that the rate-limit service may use through this policy. Default: none.
    #[serde(default)]
    pub namespaces: Optional<Namespaces>,
    /// The https URL by which clients know what the gateway protects. With it, metadata of the protected resource (RFC
    /// 9728) is published at `/.well-known/oauth-protected-resource/<policyId>`. Default, and if empty: none.
    #[serde(default)]
    pub resource: Optional<ResourceUrl>,
    /// The issuers of the authorization servers that the metadata names. Default: none.
    #[serde(default)]
    pub authorization_servers: Optional<AuthorizationServers>,
}

impl Operation for CreatePolicy {
    const NAME: &'static str = "gateways.createPolicy";
    const ACCESS: AccessRule =
        AccessRule::Permission(&[Action::CreateGatewayPolicy, Action::VerifyKey]);
    const WRITES: bool = true;
    type Reply = SecretReply;

    fn example() -> Value {
        json!({
            "name": "public-api",
            "apiIds": [example::API],
            "rules": [
                { "methods": ["GET"], "path": "/documents/**", "permissions": "documents.read" },
                { "path": "/documents/**", "permissions": "documents.write", "cost": 2 }
            ]
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<SecretReply> {
        let config = GatewayPolicyConfig {
            api_ids: to_api_ids(self.api_ids),
            key_from: self.key_from.0.map_or_else(|| Ok(KeySource::defaults()), to_key_sources)?,
            rules: self.rules.0.map_or_else(Vec::new, to_rules),
            identity_headers: self
                .identity_headers
                .0
                .map(|Object(fields)| fields.into())
                .unwrap_or_default(),
            on_failure: self.on_failure.0.map(|format| format.0.into()).unwrap_or_default(),
            allow_from: self.allow_from.0.map_or_else(|| Ok(Vec::new()), to_networks)?,
            namespaces: self.namespaces.0.map_or_else(Vec::new, to_namespaces),
            resource: self.resource.0.map(Text::into_string).unwrap_or_default(),
            authorization_servers: self.authorization_servers.0.map_or_else(Vec::new, into_strings),
        };
        let new = NewGatewayPolicy { name: self.name.into_string(), config };
        Ok(gateways::create(&app.context, caller, new).await?.into())
    }
}
