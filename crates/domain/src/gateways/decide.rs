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
    /// The method. `None`: unknown, so no rule with methods matches, nor any rule after it. One with lower-case letters counts as
    /// unknown, because servers differ in what they make of it.
    fn method(&self) -> Option<&str>;
    /// The path without the query, as the client sent it. `None`: unknown, so no rule with a path matches, nor any rule after
    /// it.
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
    request: &(dyn OriginalRequest + Sync),
) -> Result<GatewayDecision> {
    Ok(match prepare(policy, request) {
        None => GatewayDecision::NoKey,
        Some((_, None)) => GatewayDecision::Verified(keys::reject_too_long(keys, caller)),
        Some((_, Some(verification))) => {
            GatewayDecision::Verified(keys::verify(keys, caller, verification).await?)
        }
    })
}

/// Returns where a request has its key, and the verification of the key. `None`: it has no key. No verification: the key is
/// too long to be one.
pub(super) fn prepare<'a>(
    policy: &'a ActivePolicy,
    request: &dyn OriginalRequest,
) -> Option<(&'a KeySource, Option<VerifyRequest>)> {
    let sources = &policy.policy.config.key_from;
    let found = |source: &'a KeySource| Some((source, request.credential(source)?));
    let (source, key) = sources.iter().find_map(found)?;
    let is_short = key.chars().count() <= KEY_MAX_CHARS;
    Some((source, is_short.then(|| to_verification(policy, request, key.into_owned()))))
}

fn to_verification(
    policy: &ActivePolicy,
    request: &dyn OriginalRequest,
    key: String,
) -> VerifyRequest {
    let default_rule = GatewayRule::default();
    let matching = match match_rule(policy, request) {
        RuleMatch::NoRules => Some(&default_rule),
        RuleMatch::Rule(at) => policy.rules.get(at).map(|active| &active.rule),
        RuleMatch::None => None,
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

/// The rule of a policy that applies to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleMatch {
    /// The policy has no rules: a valid key is sufficient.
    NoRules,
    /// The first rule that matches, by its index.
    Rule(usize),
    /// The policy has rules, and none matches for certain.
    None,
}

/// Finds the first rule that matches a request. A rule that may match, because the method or the path is unknown, ends the
/// search without a match: it may be stricter than those after it.
pub(super) fn match_rule(policy: &ActivePolicy, request: &dyn OriginalRequest) -> RuleMatch {
    if policy.rules.is_empty() {
        return RuleMatch::NoRules;
    }
    let path = request.path().and_then(RequestPath::parse);
    // To some servers `delete` is `DELETE`, and to others an unknown method.
    let method = request.method().filter(|method| !method.bytes().any(|b| b.is_ascii_lowercase()));
    for (at, active) in policy.rules.iter().enumerate() {
        match active.matches(method, path.as_ref()) {
            Some(true) => return RuleMatch::Rule(at),
            Some(false) => {}
            None => break,
        }
    }
    RuleMatch::None
}

impl ActiveRule {
    /// Returns whether the rule matches. `None`: it depends on what is unknown.
    fn matches(&self, method: Option<&str>, path: Option<&RequestPath<'_>>) -> Option<bool> {
        let methods = &self.rule.methods;
        let is_method = match methods.is_empty() {
            true => Some(true),
            false => method.map(|method| methods.iter().any(|known| known == method)),
        };
        let is_path = match &self.path {
            None => Some(true),
            Some(pattern) => path.map(|path| pattern.matches(path)),
        };
        match (is_method, is_path) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            (None, _) | (_, None) => None,
        }
    }
}

fn to_requested_limit(limit: &GatewayLimit) -> RequestedLimit {
    let source = match (limit.limit, limit.duration) {
        (Some(limit), Some(duration_ms)) => LimitSource::AdHoc { limit, duration_ms },
        _ => LimitSource::Stored,
    };
    RequestedLimit { name: limit.name.clone(), cost: limit.cost.unwrap_or(1), limit: source }
}
