//! Callers: the root key or user that makes a request, its workspace and grants, and its client.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foundation::error::{Error, Result};
use foundation::id::{AuditId, RequestId, WorkspaceId};
use foundation::model::{RootKey, User};

use super::idempotency::IdempotencyKey;
use super::last_used::UseFlag;
use super::permission::{self, Action, Grants};
pub use store::cache::Cached;

/// The root key or user behind a principal.
#[derive(Debug)]
pub enum PrincipalKind {
    RootKey(RootKey),
    Person(User),
}

/// A root key, or a user in a workspace, with grants that are ready to check. It is immutable: a root key that has
/// changed is another principal.
#[derive(Debug)]
pub struct Principal {
    pub who: PrincipalKind,
    pub workspace_id: WorkspaceId,
    pub grants: Grants,
    /// Whether it has been used since the last flush of uses.
    pub used: UseFlag,
    /// Unique among the principals of this process, and never 0.
    number: u64,
}

impl Principal {
    pub fn of_root_key(key: RootKey, grants: Grants) -> Self {
        Self::new(key.workspace_id.clone(), PrincipalKind::RootKey(key), grants)
    }

    pub fn of_person(user: User, workspace_id: WorkspaceId, grants: Grants) -> Self {
        Self::new(workspace_id, PrincipalKind::Person(user), grants)
    }

    fn new(workspace_id: WorkspaceId, kind: PrincipalKind, grants: Grants) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self { who: kind, workspace_id, grants, used: UseFlag::default(), number }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the user, unless it is a root key.
    pub fn person(&self) -> Option<&User> {
        match &self.who {
            PrincipalKind::Person(user) => Some(user),
            PrincipalKind::RootKey(_) => None,
        }
    }

    /// Returns the root key, unless it is a user.
    pub fn root_key(&self) -> Option<&RootKey> {
        match &self.who {
            PrincipalKind::RootKey(key) => Some(key),
            PrincipalKind::Person(_) => None,
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
const V6_NETWORK: u128 = !0 << 64;

impl ClientInfo {
    /// Returns what attempts are counted by: an IPv4 address, or an IPv6 network. `None` if the client's address is
    /// unknown.
    pub fn network(&self) -> Option<IpAddr> {
        Some(match self.address?.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & V6_NETWORK).into(),
        })
    }
}

/// The caller of an operation.
#[derive(Debug, Clone)]
pub struct Caller {
    pub authority: Arc<Cached<Principal>>,
    pub origin: ClientInfo,
    /// Identifies the request if it may be repeated.
    pub idempotency_key: Option<Arc<IdempotencyKey>>,
    pub request: RequestId,
    /// Whether the request causes no analytics event.
    pub is_unrecorded: bool,
    /// The audit entry that the operation undoes.
    pub undoes: Option<AuditId>,
}

impl Caller {
    pub fn workspace(&self) -> &WorkspaceId {
        &self.authority.value.workspace_id
    }

    /// Fails with [`Error::Forbidden`] unless everything that `tuple` grants is allowed.
    pub fn require_tuple(&self, tuple: &str) -> Result<()> {
        let (action, id) =
            permission::parse(tuple).map_err(|message| Error::invalid("permission", message))?;
        let holds = if id == "*" { self.may(action) } else { self.may_on(action, &id) };
        if holds { Ok(()) } else { Err(Error::Forbidden(tuple.to_owned())) }
    }

    pub fn may(&self, action: Action) -> bool {
        self.authority.value.grants.allow(action)
    }

    pub fn may_on(&self, action: Action, id: &impl AsRef<str>) -> bool {
        self.authority.value.grants.allow_on(action, id)
    }

    /// Returns the ids of the instances for which the action is granted individually.
    pub fn instances(&self, action: Action) -> Vec<String> {
        self.authority.value.grants.instances(action).map(str::to_owned).collect()
    }

    /// Fails with the missing permission unless the action is allowed on every instance.
    pub fn require(&self, action: Action) -> Result<()> {
        if self.may(action) { Ok(()) } else { Err(Error::Forbidden(action.everywhere())) }
    }

    /// Fails with both alternatives unless the action is allowed on this instance.
    pub fn require_on(&self, action: Action, id: &impl AsRef<str>) -> Result<()> {
        if self.may_on(action, id) {
            return Ok(());
        }
        Err(Error::Forbidden(format!("{} or {}", action.everywhere(), action.on(id.as_ref()))))
    }
}
