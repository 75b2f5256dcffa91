//! Who asks: a root key, its workspace and what it may do, and from where.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::once::Once;
use super::permission::{Action, Grants};
use crate::error::{Error, Result};
use crate::id::{RequestId, WorkspaceId};
use crate::model::RootKey;
pub use crate::store::cache::Cached;

/// A root key that has been found, with its permissions ready to ask. It never changes: a root key
/// that has changed is another authority.
#[derive(Debug)]
pub struct Authority {
    pub key: RootKey,
    pub grants: Grants,
    /// No two authorities of this process have the same; never 0.
    number: u64,
}

impl Authority {
    pub fn new(key: RootKey, grants: Grants) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self { key, grants, number: LAST.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    pub fn number(&self) -> u64 {
        self.number
    }
}

/// From where a request came; for the audit log.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    pub address: Option<IpAddr>,
    /// Whether that may be the address of a proxy, behind which others are too.
    pub is_shared: bool,
    pub user_agent: Option<Box<str>>,
}

/// Who asks.
#[derive(Debug, Clone)]
pub struct Caller {
    pub authority: Arc<Cached<Authority>>,
    pub origin: Origin,
    /// How the request is told from others, where it may be asked again.
    pub once: Option<Arc<Once>>,
    pub request: RequestId,
    /// Whether the request is to leave no event.
    pub is_unrecorded: bool,
}

impl Caller {
    pub fn workspace(&self) -> &WorkspaceId {
        &self.authority.value.key.workspace_id
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
