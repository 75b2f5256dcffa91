//! Judges a request that a gateway has received. Everything but the choice of the rule is a verification like any other.

use std::borrow::Cow;

use foundation::error::Result;
use foundation::model::{GatewayLimit, GatewayRule, KeySource};
use foundation::secret::Plaintext;

use super::lookup::{ActivePolicy, ActiveRule};
use super::path_pattern::RequestPath;
use crate::caller::Caller;
use crate::keys::{self, Keys, LimitSource, RequestedLimit, VerifyRequest, VerifyResult};
use crate::query::PermissionQuery;

/// The request that a gateway has received, as far as the gateway tells.
pub trait OriginalRequest {
    /// The method. `None`: unknown, so no rule with methods matches.
    fn method(&self) -> Option<&str>;
    /// The path without the query, as the client sent it. `None`: unknown, so no rule with a path matches.
    fn path(&self) -> Option<&str>;
    /// Returns the credential at this place.
    fn credential(&self, source: &KeySource) -> Option<Credential<'_>>;
}

/// The text of a header, a parameter or a cookie.
pub type Credential<'a> = Cow<'a, str>;

/// The judgement of a request.
#[derive(Debug)]
pub enum GatewayDecision {
    /// The request has no key in any of the places where the policy looks.
    NoKey,
    Verified(VerifyResult),
}

/// The maximum length of a key, as in a verification by the API.
const KEY_MAX_CHARS: usize = 512;

/// Judges a request by a policy. `caller` has the principal of the policy.
pub async fn decide(
    keys: &Keys,
    caller: &Caller,
    policy: &ActivePolicy,
    request: &(impl OriginalRequest + Sync),
) -> Result<GatewayDecision> {
    let sources = &policy.policy.config.key_from;
    let Some(key) = sources.iter().find_map(|source| request.credential(source)) else {
        return Ok(GatewayDecision::NoKey);
    };
    if key.chars().count() > KEY_MAX_CHARS {
        return Ok(GatewayDecision::Verified(VerifyResult::default()));
    }
    let verification = to_verification(policy, request, key.into_owned());
    Ok(GatewayDecision::Verified(keys::verify(keys, caller, verification).await?))
}

fn to_verification(
    policy: &ActivePolicy,
    request: &impl OriginalRequest,
    key: String,
) -> VerifyRequest {
    let default_rule = GatewayRule::default();
    let matching = match policy.rules.is_empty() {
        true => Some(&default_rule),
        false => find_rule(&policy.rules, request),
    };
    let rule = matching.unwrap_or(&default_rule);
    VerifyRequest {
        key: Plaintext::from(key),
        api: None,
        permissions: rule.permissions.clone().map(PermissionQuery::Text),
        cost: rule.cost,
        ratelimits: rule.ratelimits.iter().map(to_requested_limit).collect(),
        address: None,
        migration: None,
        tags: rule.tags.clone(),
        auto_applies_limits: true,
        is_refused_by_policy: matching.is_none(),
    }
}

/// Returns the first rule that matches a request.
fn find_rule<'a>(
    rules: &'a [ActiveRule],
    request: &impl OriginalRequest,
) -> Option<&'a GatewayRule> {
    let path = request.path().and_then(RequestPath::parse);
    let matches = |active: &&ActiveRule| {
        let methods = &active.rule.methods;
        let is_method = methods.is_empty()
            || request.method().is_some_and(|method| methods.iter().any(|known| known == method));
        let is_path = match &active.path {
            None => true,
            Some(pattern) => path.as_ref().is_some_and(|path| pattern.matches(path)),
        };
        is_method && is_path
    };
    rules.iter().find(matches).map(|active| &active.rule)
}

fn to_requested_limit(limit: &GatewayLimit) -> RequestedLimit {
    let source = match (limit.limit, limit.duration) {
        (Some(limit), Some(duration_ms)) => LimitSource::AdHoc { limit, duration_ms },
        _ => LimitSource::Stored,
    };
    RequestedLimit { name: limit.name.clone(), cost: limit.cost.unwrap_or(1), limit: source }
}
