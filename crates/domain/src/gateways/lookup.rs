//! Finds the policy of a gateway and authenticates the gateway.

use std::net::IpAddr;
use std::sync::Arc;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::model::{GatewayNamespace, GatewayPolicy, GatewayRule, Namespace, Networks};
use foundation::secret::{KeyHash, Plaintext};
use store::cache::{CacheName, CacheValue, Cached, RowFuture};
use store::freshness::{CacheTag, ReadVersion};
use store::{GatewaySecrets, StoredGatewayPolicy};

use super::path_pattern::PathPattern;
use super::published::metadata_url;
use super::validate::{is_like_id, is_policy_name};
use super::{Gateways, name_tag};
use crate::caller::Principal;
use crate::context::Context;
use crate::permission::{Action, Grants};

/// What a policy is found by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PolicyRef {
    /// The hash of its secret.
    Secret(KeyHash),
    /// Its id or name, for a gateway without a secret.
    Named(String),
}

impl PolicyRef {
    /// Returns the reference to the policy with this id or name. `None`: no policy can have it, so the database need not be
    /// asked, which refuses some texts.
    pub(super) fn named(id_or_name: &str) -> Option<Self> {
        is_policy_name(id_or_name).then(|| Self::Named(id_or_name.to_owned()))
    }

    /// Returns the cache tag of a policy that is created with this secret or name.
    pub(super) fn tag_of_new_policy(&self) -> CacheTag {
        match self {
            Self::Secret(hash) => CacheTag::NewKey(hash.fingerprint()),
            Self::Named(named) => name_tag(named),
        }
    }
}

impl CacheName for PolicyRef {
    fn digest(&self) -> KeyHash {
        match self {
            Self::Secret(hash) => KeyHash::compute(format!("secret {}", hash.to_base64())),
            Self::Named(named) => KeyHash::compute(format!("named {named}")),
        }
    }
}

/// A policy that is ready to judge requests.
#[derive(Debug)]
pub struct ActivePolicy {
    pub policy: GatewayPolicy,
    pub is_workspace_enabled: bool,
    /// The URL of the metadata of the protected resource, if the policy publishes any.
    pub metadata_url: Option<String>,
    /// The caller that the policy's verifications have.
    pub principal: Arc<Cached<Principal>>,
    pub(super) rules: Vec<ActiveRule>,
    namespaces: Vec<ActiveNamespace>,
    /// When the secret by which it was found expires. Absent: it was not replaced.
    secret_expires_at: Option<Timestamp>,
    allow_from: Option<Networks>,
}

impl CacheValue for ActivePolicy {
    /// Estimates it by its text: the policies of a server are few.
    fn heap_size(&self) -> usize {
        let config = serde_json::to_string(&self.policy.config).unwrap_or_default();
        let namespaces = size_of_val(&*self.namespaces);
        3 * config.len() + size_of_val(&*self.rules) + namespaces + self.principal.size()
    }
}

/// A rule with its path parsed.
#[derive(Debug)]
pub(super) struct ActiveRule {
    pub(super) rule: GatewayRule,
    pub(super) path: Option<PathPattern>,
}

/// A namespace that the rate-limit service may use, and what the policy says about it.
#[derive(Debug)]
struct ActiveNamespace {
    namespace: Namespace,
    listed: GatewayNamespace,
}

/// What a gateway shows of itself.
#[derive(Debug)]
pub struct GatewayIdentity<'a> {
    /// The id or name of its policy. Without one, the secret names it.
    pub policy: Option<&'a str>,
    /// The secret that it presents.
    pub secret: Option<&'a [u8]>,
    /// The address that its connection comes from.
    pub peer: Option<IpAddr>,
}

/// Returns the policy that a gateway names, if it proves itself: by the policy's secret, or by an address from which no
/// secret is required. The error does not tell an unknown policy from a wrong secret; the log does, at most once a second.
pub async fn authenticate(
    gateways: &Gateways,
    gateway: &GatewayIdentity<'_>,
) -> Result<Arc<Cached<ActivePolicy>>> {
    let reject = |reason: &'static str| {
        gateways.refusals.record(gateway.policy.unwrap_or_default(), gateway.peer, reason);
        Error::GatewayRefused
    };
    let reference = match gateway.secret {
        Some(secret) => Some(PolicyRef::Secret(KeyHash::compute(secret))),
        None => gateway.policy.and_then(PolicyRef::named),
    };
    let found = match &reference {
        Some(reference) => find_active(gateways, reference).await?,
        None => None,
    };
    let Some(found) = found else {
        return Err(reject(match gateway.secret {
            Some(_) => "the secret is unknown",
            None => "it sent no secret, and no policy with this name or id exists",
        }));
    };
    let active = &found.value;
    let is_over = |expires_at| gateways.context.clock.now() > expires_at;
    match gateway.secret {
        Some(_) if gateway.policy.is_some_and(|named| !active.is_named(named)) => {
            return Err(reject("the secret belongs to another policy"));
        }
        Some(_) if active.secret_expires_at.is_some_and(is_over) => {
            return Err(reject("the secret was replaced and has expired"));
        }
        None if !active.allows(gateway.peer) => {
            return Err(reject("it sent no secret, and its address is not in allowFrom"));
        }
        Some(_) | None => {}
    }
    if !active.is_workspace_enabled {
        return Err(Error::WorkspaceDisabled);
    }
    Ok(found)
}

/// Returns the policy from the cache.
pub fn find_active<'a>(
    gateways: &'a Gateways,
    reference: &'a PolicyRef,
) -> RowFuture<'a, ActivePolicy> {
    gateways.cache.get(reference, move |load| async move {
        let context: &Context = &gateways.context;
        let found = context.read_again_if_lost(|| load_policy(context, reference)).await?;
        let Some((stored, all)) = found else { return Ok(None) };
        let listed = &stored.policy.config.namespaces;
        let to_active = |namespace: Namespace| {
            let listed =
                listed.iter().find(|listed| is_named(&namespace, &listed.namespace))?.clone();
            Some(ActiveNamespace { namespace, listed })
        };
        let namespaces: Vec<_> = all.into_iter().filter_map(to_active).collect();
        let to_cached = |stored: StoredGatewayPolicy| {
            let id = CacheTag::GatewayPolicy(stored.policy.id.clone());
            let tags = match reference {
                PolicyRef::Secret(_) => vec![id],
                // An older policy with the same name may be restored.
                PolicyRef::Named(named) => vec![id, name_tag(named)],
            };
            let public_url = &gateways.context.settings.public_url;
            let active =
                ActivePolicy::new(stored, reference, namespaces, load.version, public_url)?;
            Ok(Cached::new(active, load.version, tags))
        };
        to_cached(stored).map(Some)
    })
}

/// Loads the policy, and the namespaces of its workspace if it lists any.
async fn load_policy(
    context: &Context,
    reference: &PolicyRef,
) -> Result<Option<(StoredGatewayPolicy, Vec<Namespace>)>> {
    let mut reader = context.store.read().await?;
    let found = match reference {
        PolicyRef::Secret(hash) => reader.find_gateway_policy_by_secret(&hash.to_base64()).await?,
        PolicyRef::Named(named) => reader.find_named_gateway_policy(named).await?,
    };
    let Some(stored) = found else { return Ok(None) };
    let namespaces = match stored.policy.config.namespaces.is_empty() {
        true => Vec::new(),
        false => reader.list_all_namespaces(&stored.policy.workspace_id).await?,
    };
    Ok(Some((stored, namespaces)))
}

impl ActivePolicy {
    fn new(
        stored: StoredGatewayPolicy,
        reference: &PolicyRef,
        namespaces: Vec<ActiveNamespace>,
        version: ReadVersion,
        public_url: &str,
    ) -> Result<Self> {
        let StoredGatewayPolicy { policy, is_workspace_enabled, secrets } = stored;
        let apis = policy.config.api_ids.iter().map(|id| (Action::VerifyKey, id.as_str()));
        let limits = namespaces.iter().map(|active| (Action::Limit, active.namespace.id.as_str()));
        let grants: Grants = apis.chain(limits).collect();
        let tag = CacheTag::GatewayPolicy(policy.id.clone());
        let principal = Principal::from_gateway_policy(&policy, grants);
        let to_active = |rule: &GatewayRule| {
            let path = rule.path.as_deref().map(PathPattern::parse).transpose();
            let path = path.map_err(|reason| {
                Error::Internal(format!("gateway policy {}: path {reason}", policy.id))
            })?;
            Ok(ActiveRule { rule: rule.clone(), path })
        };
        Ok(Self {
            rules: policy.config.rules.iter().map(to_active).collect::<Result<_>>()?,
            principal: Arc::new(Cached::new(principal, version, [tag])),
            allow_from: Networks::new(policy.config.allow_from.clone()),
            metadata_url: metadata_url(&policy, public_url),
            secret_expires_at: secret_expiry(reference, &secrets),
            is_workspace_enabled,
            namespaces,
            policy,
        })
    }

    /// Returns what the policy says about the namespace with this id or name, whichever of the two it lists. `None`: it does not
    /// list the namespace.
    pub fn find_namespace(&self, id_or_name: &str) -> Option<&GatewayNamespace> {
        let active = self.namespaces.iter().find(|known| is_named(&known.namespace, id_or_name))?;
        Some(&active.listed)
    }

    fn is_named(&self, named: &str) -> bool {
        let GatewayPolicy { id, name, .. } = &self.policy;
        id.as_str() == named || (name == named && !is_like_id(name))
    }

    fn allows(&self, peer: Option<IpAddr>) -> bool {
        let allowed = self.allow_from.as_ref();
        peer.is_some_and(|peer| allowed.is_some_and(|allowed| allowed.contains(peer)))
    }
}

fn is_named(namespace: &Namespace, id_or_name: &str) -> bool {
    namespace.name == id_or_name || namespace.id.as_str() == id_or_name
}

/// Returns when the secret that a reference holds expires. `None`: it is the current one, or there is none.
fn secret_expiry(reference: &PolicyRef, secrets: &GatewaySecrets) -> Option<Timestamp> {
    let PolicyRef::Secret(hash) = reference else { return None };
    let expires_at = secrets.previous.as_ref().map_or(Timestamp(0), |(_, expires_at)| *expires_at);
    (hash.to_base64() != secrets.hash).then_some(expires_at)
}

/// The prefix of the secrets of gateways.
const SECRET_PREFIX: &str = "keyward_gateway";
/// The number of random bytes of a secret.
const SECRET_BYTES: u8 = 24;

pub(super) fn generate_secret() -> Plaintext {
    Plaintext::generate(Some(SECRET_PREFIX), SECRET_BYTES)
}
