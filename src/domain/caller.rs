//! Who asks: a root key or a person, in which workspace, with what rights, and from where.

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

/// Whose rights an authority stands for.
#[derive(Debug)]
pub enum PrincipalKind {
    RootKey(RootKey),
    Person(User),
}

/// A root key that has been found, or a person in a workspace, with the permissions ready to ask. It never
/// changes: a root key that has changed is another authority.
#[derive(Debug)]
pub struct Principal {
    pub who: PrincipalKind,
    pub workspace_id: WorkspaceId,
    pub grants: Grants,
    /// Whether it has been used since uses were last noted.
    pub used: UseFlag,
    /// No two authorities of this process have the same; never 0.
    number: u64,
}

impl Principal {
    pub fn of_root_key(key: RootKey, grants: Grants) -> Self {
        Self::new(key.workspace_id.clone(), PrincipalKind::RootKey(key), grants)
    }

    pub fn of_person(person: User, workspace_id: WorkspaceId, grants: Grants) -> Self {
        Self::new(workspace_id, PrincipalKind::Person(person), grants)
    }

    fn new(workspace_id: WorkspaceId, who: PrincipalKind, grants: Grants) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self { who, workspace_id, grants, used: UseFlag::default(), number }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// The person, unless it is a root key.
    pub fn person(&self) -> Option<&User> {
        match &self.who {
            PrincipalKind::Person(person) => Some(person),
            PrincipalKind::RootKey(_) => None,
        }
    }

    /// The root key, unless it is a person.
    pub fn root_key(&self) -> Option<&RootKey> {
        match &self.who {
            PrincipalKind::RootKey(key) => Some(key),
            PrincipalKind::Person(_) => None,
        }
    }
}

/// From where a request came; for the audit log.
#[derive(Debug, Clone, Default)]
pub struct ClientInfo {
    pub address: Option<IpAddr>,
    pub user_agent: Option<Box<str>>,
}

/// Who has one address of a network of IPv6 has all of this prefix.
const V6_NETWORK: u128 = !0 << 64;

impl ClientInfo {
    /// What attempts are counted by: an address of IPv4, or a network of IPv6. `None`: nobody knows who asks.
    pub fn network(&self) -> Option<IpAddr> {
        Some(match self.address?.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & V6_NETWORK).into(),
        })
    }
}

/// Who asks.
#[derive(Debug, Clone)]
pub struct Caller {
    pub authority: Arc<Cached<Principal>>,
    pub origin: ClientInfo,
    /// How the request is told from others, where it may be asked again.
    pub idempotency_key: Option<Arc<IdempotencyKey>>,
    pub request: RequestId,
    /// Whether the request is to leave no event.
    pub is_unrecorded: bool,
    /// The entry of the audit log that the act undoes.
    pub undoes: Option<AuditId>,
}

impl Caller {
    pub fn workspace(&self) -> &WorkspaceId {
        &self.authority.value.workspace_id
    }

    /// Fails with [`Error::Forbidden`] unless all that `tuple` grants is allowed.
    pub fn require_tuple(&self, tuple: &str) -> Result<()> {
        let (action, id) =
            permission::parse(tuple).map_err(|fault| Error::invalid("permission", fault))?;
        let holds = if id == "*" { self.may(action) } else { self.may_on(action, &id) };
        if holds { Ok(()) } else { Err(Error::Forbidden(tuple.to_owned())) }
    }

    pub fn may(&self, action: Action) -> bool {
        self.authority.value.grants.allow(action)
    }

    pub fn may_on(&self, action: Action, id: &impl AsRef<str>) -> bool {
        self.authority.value.grants.allow_on(action, id)
    }

    /// The instances on which the action is allowed by their id.
    pub fn instances(&self, action: Action) -> Vec<String> {
        self.authority.value.grants.instances(action).map(str::to_owned).collect()
    }

    /// Fails with what is missing unless the action is allowed on every instance.
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
