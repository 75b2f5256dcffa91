//! Reads on a standby of Postgres, whose rows are as old as its replay position.
//!
//! Each read returns the position with the row, from the same snapshot: the number of the last heartbeat of the reading
//! replica that the standby has. It is part of the data, so it needs no function of a certain server, is valid after a
//! failover, and belongs to whichever standby a load balancer has chosen.

use async_trait::async_trait;
use foundation::error::Result;
use foundation::id::{IdentityId, RoleId, WorkspaceId};
use foundation::model::{Identity, Role, RootKey};
use futures_util::future::BoxFuture;

use super::postgres::{self, Pool};
use super::{Reader, StoredKey, StoredNamespace};

/// A row, and the heartbeat that was visible together with it.
#[derive(Debug)]
pub struct StandbyRow<T> {
    pub value: T,
    /// The number of the last heartbeat of the reading replica. `None` if the standby has no row of that replica.
    pub heartbeat: Option<i64>,
}

#[async_trait]
pub trait StandbyReads: Send {
    /// Returns the number of the last heartbeat of a replica. `None` if the replica has no row.
    async fn find_heartbeat(&mut self, replica: &str) -> Result<Option<i64>>;
    /// Like `find_key_by_hash`, for this replica.
    async fn find_key_on_standby(
        &mut self,
        hash: &str,
        replica: &str,
    ) -> Result<Option<StandbyRow<StoredKey>>>;
    /// Like `find_root_key_by_hash`, for this replica.
    async fn find_root_key_on_standby(
        &mut self,
        hash: &str,
        replica: &str,
    ) -> Result<Option<StandbyRow<RootKey>>>;
    /// Returns an identity by id, for this replica.
    async fn find_identity_on_standby(
        &mut self,
        workspace: &WorkspaceId,
        id: &IdentityId,
        replica: &str,
    ) -> Result<Option<StandbyRow<Identity>>>;
    /// Returns a role by id, for this replica.
    async fn find_role_on_standby(
        &mut self,
        workspace: &WorkspaceId,
        id: &RoleId,
        replica: &str,
    ) -> Result<Option<StandbyRow<Role>>>;
    /// Like `find_stored_namespace`, for this replica.
    async fn find_namespace_on_standby(
        &mut self,
        workspace: &WorkspaceId,
        id_or_name: &str,
        replica: &str,
    ) -> Result<Option<StandbyRow<StoredNamespace>>>;
}

/// A pool of read-only connections to a standby, or to the primary itself.
#[derive(Debug)]
pub struct Standby(Pool);

impl Standby {
    /// Creates a pool. Its connections are opened on first use.
    pub fn new(url: &str, connections_max: u32) -> Result<Self> {
        Ok(Self(postgres::read_only_pool(url, connections_max)?))
    }

    pub fn read(&self) -> BoxFuture<'_, Result<Reader>> {
        Box::pin(async move { Ok(Reader::new(self.0.acquire().await?)) })
    }

    /// Replaces all connections: on one that was lost without notice, no reply ever arrives.
    pub fn reconnect(&self) {
        self.0.replace();
    }

    /// Closes every connection.
    pub async fn close(&self) {
        self.0.close().await;
    }
}
