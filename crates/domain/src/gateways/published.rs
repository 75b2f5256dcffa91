//! What a policy publishes about what its gateway protects: metadata of a protected resource (RFC 9728).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use foundation::error::Result;
use foundation::model::{GatewayPolicy, GatewayPolicyConfig};
use store::cache::Cached;

use super::Gateways;
use super::lookup::{ActivePolicy, PolicyRef, find_active};
use crate::query;

/// The path of the metadata, without the id of the policy.
pub const METADATA_PATH: &str = "/.well-known/oauth-protected-resource/";

/// Returns the policy with this id or name. Of policies of several workspaces with one name, it is the oldest.
pub async fn find_published(
    gateways: &Gateways,
    id_or_name: &str,
) -> Result<Option<Arc<Cached<ActivePolicy>>>> {
    let Some(reference) = PolicyRef::named(id_or_name) else { return Ok(None) };
    let found = find_active(gateways, &reference).await?;
    Ok(found.filter(|found| found.value.is_workspace_enabled))
}

/// Returns the URL of the metadata of a policy, for challenges. `None`: the policy does not name its resource, and the metadata
/// would name one that the client has not asked for.
pub(super) fn metadata_url(policy: &GatewayPolicy, public_url: &str) -> Option<String> {
    let is_named = !policy.config.resource.is_empty();
    is_named.then(|| format!("{public_url}{METADATA_PATH}{}", policy.id))
}

/// Returns the resource that a policy names, or else the one that its metadata belongs to by the path of their URLs (RFC 9728,
/// section 3.1).
pub fn resource_of(policy: &GatewayPolicy, id_or_name: &str, public_url: &str) -> String {
    match policy.config.resource.is_empty() {
        true => format!("{public_url}/{id_or_name}"),
        false => policy.config.resource.clone(),
    }
}

/// Lists the permissions that the rules of a policy name.
pub fn list_scopes(config: &GatewayPolicyConfig) -> Result<BTreeSet<String>> {
    let names = RefCell::new(BTreeSet::new());
    for permissions in config.rules.iter().filter_map(|rule| rule.permissions.as_deref()) {
        // The evaluation asks for every permission, whatever the result of the others.
        query::is_satisfied(permissions, |name| names.borrow_mut().insert(name.to_owned()))?;
    }
    Ok(names.into_inner())
}

#[cfg(test)]
mod tests {
    use foundation::model::GatewayRule;

    use super::*;

    #[test]
    fn scopes_are_all_permissions_of_the_rules() {
        let rule = |permissions: Option<&str>| GatewayRule {
            permissions: permissions.map(str::to_owned),
            ..GatewayRule::default()
        };
        let rules = [Some("b.read OR (a.read AND c)"), None, Some("a.read")].map(rule);
        let config = GatewayPolicyConfig { rules: rules.to_vec(), ..Default::default() };

        let scopes = list_scopes(&config).expect("valid queries");

        assert_eq!(scopes.into_iter().collect::<Vec<_>>(), ["a.read", "b.read", "c"]);
    }
}
