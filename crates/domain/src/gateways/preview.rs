//! Previews of decisions, which explain to a user what a policy does.

use std::sync::Arc;

use foundation::error::{Error, ResourceRef, Result};
use foundation::id::ApiId;
use foundation::model::KeySource;

use super::decide::{GatewayDecision, OriginalRequest, RuleMatch, match_rule, prepare};
use super::lookup::{ActivePolicy, PolicyRef, find_active};
use super::{Gateways, policies};
use crate::caller::{Cached, Caller};
use crate::keys::{self, Keys, VerifyPreview};
use crate::permission::Action;

/// What a policy would decide about a request, and why.
#[derive(Debug)]
pub struct GatewayPreview {
    pub decision: GatewayDecision,
    /// Where the request has its key.
    pub key_source: Option<KeySource>,
    pub rule: RuleMatch,
    /// Why the key would be rejected.
    pub reason: Option<Box<str>>,
    /// The API of the key, if it is a key of the workspace and the policy does not accept keys of its API.
    pub other_api: Option<ApiId>,
}

/// Returns the policy with this id or name as it judges requests. A preview reveals what a key may do, so the caller must be
/// allowed to read the policy and the keys of its APIs.
pub async fn find_for_preview(
    gateways: &Gateways,
    caller: &Caller,
    named: &str,
) -> Result<Arc<Cached<ActivePolicy>>> {
    let policy = policies::get(&gateways.context, caller, named).await?;
    for api in &policy.config.api_ids {
        caller.require_on(Action::ReadKey, api)?;
    }
    let reference = PolicyRef::Named(policy.id.to_string());
    let found = find_active(gateways, &reference).await?;
    let found = found.filter(|found| found.value.policy.id == policy.id);
    found.ok_or_else(|| Error::not_found(ResourceRef::GatewayPolicy(policy.id)))
}

/// Returns what [`decide`](super::decide) would decide now. Nothing is consumed, recorded or counted. `caller` has the
/// principal of the policy.
pub async fn preview(
    keys: &Keys,
    caller: &Caller,
    policy: &ActivePolicy,
    request: &(impl OriginalRequest + Sync),
) -> Result<GatewayPreview> {
    let rule = match_rule(policy, request);
    let Some((source, verification)) = prepare(policy, request) else {
        let (decision, key_source) = (GatewayDecision::NoKey, None);
        return Ok(GatewayPreview { decision, key_source, rule, reason: None, other_api: None });
    };
    let key_source = Some(source.clone());
    let VerifyPreview { result, reason, hidden_api: other_api } = match verification {
        None => VerifyPreview::default(),
        Some(verification) => keys::preview(keys, caller, &verification).await?,
    };
    let decision = GatewayDecision::Verified(result);
    Ok(GatewayPreview { decision, key_source, rule, reason, other_api })
}
