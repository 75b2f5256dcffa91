//! Callers: the root key or user that makes a request, its workspace and grants, and its client.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::{AuditId, GatewayPolicyId, RequestId, WorkspaceId};
use foundation::model::{GatewayPolicy, RootKey, User};

use crate::form_submission::FormSubmission;
use crate::idempotency_key::IdempotencyKey;
use crate::permission::{self, Action, Grants};
use crate::use_flag::UseFlag;
use store::cache::CacheValue;
pub use store::cache::Cached;
use store::freshness::ReadVersion;

/// The root key, user or gateway policy behind a principal.
#[derive(Debug)]
pub enum PrincipalKind {
    RootKey(RootKey),
    User(User),
    GatewayPolicy(GatewayPolicyId),
    /// An operator, who has access to the server itself.
    Operator,
}

/// A root key, or a user in a workspace, with grants that are ready to check. It is immutable: a root key that has
/// changed is another principal.
#[derive(Debug)]
pub struct Principal {
    pub kind: PrincipalKind,
    pub workspace_id: WorkspaceId,
    pub grants: Grants,
    /// Whether it has been used since the last flush of uses.
    pub use_flag: UseFlag,
    /// Unique among the principals of this process, and never 0.
    instance_id: u64,
}

impl CacheValue for Principal {
    /// Estimates it by the permissions, which are stored as text and as grants.
    fn heap_size(&self) -> usize {
        match &self.kind {
            PrincipalKind::RootKey(key) => {
                key.permissions.iter().map(|tuple| PERMISSION_BYTES + 2 * tuple.len()).sum()
            }
            PrincipalKind::User(_) | PrincipalKind::GatewayPolicy(_) | PrincipalKind::Operator => 0,
        }
    }
}

/// What a permission takes besides its text.
const PERMISSION_BYTES: usize = 48;

impl Principal {
    pub fn from_root_key(key: RootKey, grants: Grants) -> Self {
        Self::new(key.workspace_id.clone(), PrincipalKind::RootKey(key), grants)
    }

    pub fn from_user(user: User, workspace_id: WorkspaceId, grants: Grants) -> Self {
        Self::new(workspace_id, PrincipalKind::User(user), grants)
    }

    pub fn from_gateway_policy(policy: &GatewayPolicy, grants: Grants) -> Self {
        let kind = PrincipalKind::GatewayPolicy(policy.id.clone());
        Self::new(policy.workspace_id.clone(), kind, grants)
    }

    /// Returns an operator, who may do everything in a workspace.
    fn operator(workspace_id: WorkspaceId) -> Self {
        let actions = Action::ALL.iter().chain(Action::USERS_ONLY).copied();
        Self::new(workspace_id, PrincipalKind::Operator, actions.collect())
    }

    fn new(workspace_id: WorkspaceId, kind: PrincipalKind, grants: Grants) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self { kind, workspace_id, grants, use_flag: UseFlag::default(), instance_id: number }
    }

    pub fn instance_id(&self) -> u64 {
        self.instance_id
    }

    /// Returns the user, if it is one.
    pub fn user(&self) -> Option<&User> {
        match &self.kind {
            PrincipalKind::User(user) => Some(user),
            PrincipalKind::RootKey(_)
            | PrincipalKind::GatewayPolicy(_)
            | PrincipalKind::Operator => None,
        }
    }

    /// Returns the root key, if it is one.
    pub fn root_key(&self) -> Option<&RootKey> {
        match &self.kind {
            PrincipalKind::RootKey(key) => Some(key),
            PrincipalKind::User(_) | PrincipalKind::GatewayPolicy(_) | PrincipalKind::Operator => {
                None
            }
        }
    }
}

/// The client that a request came from, for the audit log.
#[derive(Debug, Clone, Default)]
pub struct ClientInfo {
    pub address: Option<IpAddr>,
    pub user_agent: Option<Box<str>>,
}

/// The network prefix of an IPv6 address: one client usually has all addresses with the same prefix.
const IPV6_NETWORK_MASK: u128 = !0 << 64;

impl ClientInfo {
    /// Returns what attempts are counted by: an IPv4 address, or an IPv6 network. `None` if the client's address is
    /// unknown.
    pub fn network(&self) -> Option<IpAddr> {
        Some(match self.address?.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & IPV6_NETWORK_MASK).into()
            }
        })
    }
}

/// The caller of an operation.
#[derive(Debug, Clone)]
pub struct Caller {
    pub principal: Arc<Cached<Principal>>,
    pub client: ClientInfo,
    /// Identifies the request if it may be repeated.
    pub idempotency_key: Option<Arc<IdempotencyKey>>,
    /// Identifies the form of the dashboard that the request submits.
    pub form_submission: Option<Arc<FormSubmission>>,
    pub request_id: RequestId,
    /// Whether the request causes no analytics event.
    pub skips_analytics: bool,
    /// The audit entry that the operation undoes.
    pub undone_entry_id: Option<AuditId>,
}

impl Caller {
    /// Returns an operator in a workspace, which must exist. `read_version` is that of the moment.
    pub fn operator(workspace_id: WorkspaceId, read_version: ReadVersion, now: Timestamp) -> Self {
        let principal = Principal::operator(workspace_id);
        Self {
            principal: Arc::new(Cached::new(principal, read_version, [])),
            client: ClientInfo::default(),
            idempotency_key: None,
            form_submission: None,
            request_id: RequestId::new(now),
            skips_analytics: false,
            undone_entry_id: None,
        }
    }

    pub fn workspace_id(&self) -> &WorkspaceId {
        &self.principal.value.workspace_id
    }

    /// Fails with [`Error::Forbidden`] unless everything that `tuple` grants is allowed.
    pub fn require_permission(&self, tuple: &str) -> Result<()> {
        let (action, id) = permission::parse_tuple(tuple)
            .map_err(|message| Error::invalid("permission", message))?;
        let holds =
            if id == "*" { self.is_allowed(action) } else { self.is_allowed_on(action, &id) };
        if holds { Ok(()) } else { Err(Error::Forbidden(tuple.to_owned())) }
    }

    pub fn is_allowed(&self, action: Action) -> bool {
        self.principal.value.grants.is_allowed(action)
    }

    pub fn is_allowed_on(&self, action: Action, id: &impl AsRef<str>) -> bool {
        self.principal.value.grants.is_allowed_on(action, id)
    }

    /// Returns the ids of the instances for which the action is granted individually.
    pub fn allowed_ids(&self, action: Action) -> Vec<String> {
        self.principal.value.grants.allowed_ids(action).map(str::to_owned).collect()
    }

    /// Fails with the missing permission unless the action is allowed on every instance.
    pub fn require(&self, action: Action) -> Result<()> {
        if self.is_allowed(action) {
            Ok(())
        } else {
            Err(Error::Forbidden(action.to_wildcard_tuple()))
        }
    }

    /// Fails with the missing permission unless the action is allowed on at least one instance.
    pub fn require_on_any(&self, action: Action) -> Result<()> {
        let mut allowed_ids = self.principal.value.grants.allowed_ids(action);
        match self.is_allowed(action) || allowed_ids.next().is_some() {
            true => Ok(()),
            false => Err(Error::Forbidden(action.to_wildcard_tuple())),
        }
    }

    /// Fails with both alternatives unless the action is allowed on this instance.
    pub fn require_on(&self, action: Action, id: &impl AsRef<str>) -> Result<()> {
        if self.is_allowed_on(action, id) {
            return Ok(());
        }
        Err(Error::Forbidden(format!(
            "{} or {}",
            action.to_wildcard_tuple(),
            action.to_tuple(id.as_ref())
        )))
    }
}
