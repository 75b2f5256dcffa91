//! Implements reads on a standby: each returns a row and the last heartbeat of the replica that is visible with it. One
//! statement has one snapshot.

use async_trait::async_trait;
use foundation::error::{Error, Result};
use foundation::id::{IdentityId, RoleId, WorkspaceId};
use foundation::model::{Identity, Role, RootKey};
use sqlx::{FromRow, query_as, query_scalar};

use super::{Connection, Database, RowQuery};
use crate::rows::{IdentityRow, KeyRow, RoleRow, RootKeyRow, RowWithHeartbeat, StoredNamespaceRow};
use crate::{StandbyReads, StandbyRow, StoredKey, StoredNamespace};

/// Adds to a query of a row the last heartbeat of a replica, whose id is the parameter `$replica`.
macro_rules! with_heartbeat {
    ($select:expr, $replica:literal) => {
        concat!(
            "SELECT found.*, (SELECT heartbeat FROM replicas WHERE id = ",
            $replica,
            ") AS heartbeat FROM (",
            $select,
            ") AS found"
        )
    };
}

#[async_trait]
impl StandbyReads for Connection {
    async fn find_heartbeat(&mut self, replica: &str) -> Result<Option<i64>> {
        let sql = "SELECT heartbeat FROM replicas WHERE id = $1";
        Ok(query_scalar(sql).bind(replica).fetch_optional(self).await?)
    }

    async fn find_key_on_standby(
        &mut self,
        hash: &str,
        replica: &str,
    ) -> Result<Option<StandbyRow<StoredKey>>> {
        let sql = with_heartbeat!(keys_where!("k.hash = $1"), "$2");
        fetch_with_heartbeat::<KeyRow, _>(self, query_as(sql).bind(hash).bind(replica)).await
    }

    async fn find_root_key_on_standby(
        &mut self,
        hash: &str,
        replica: &str,
    ) -> Result<Option<StandbyRow<RootKey>>> {
        let sql = with_heartbeat!(root_keys_where!("r.hash = $1"), "$2");
        fetch_with_heartbeat::<RootKeyRow, _>(self, query_as(sql).bind(hash).bind(replica)).await
    }

    async fn find_identity_on_standby(
        &mut self,
        workspace: &WorkspaceId,
        id: &IdentityId,
        replica: &str,
    ) -> Result<Option<StandbyRow<Identity>>> {
        let sql = with_heartbeat!(identities_where!("i.id = $2"), "$3");
        let query = query_as(sql).bind(workspace).bind(id).bind(replica);
        fetch_with_heartbeat::<IdentityRow, _>(self, query).await
    }

    async fn find_role_on_standby(
        &mut self,
        workspace: &WorkspaceId,
        id: &RoleId,
        replica: &str,
    ) -> Result<Option<StandbyRow<Role>>> {
        let sql = with_heartbeat!(roles_where!("r.id = $2"), "$3");
        let query = query_as(sql).bind(workspace).bind(id).bind(replica);
        fetch_with_heartbeat::<RoleRow, _>(self, query).await
    }

    async fn find_namespace_on_standby(
        &mut self,
        workspace: &WorkspaceId,
        id_or_name: &str,
        replica: &str,
    ) -> Result<Option<StandbyRow<StoredNamespace>>> {
        let sql = with_heartbeat!(stored_namespace!(), "$3");
        let query = query_as(sql).bind(workspace).bind(id_or_name).bind(replica);
        fetch_with_heartbeat::<StoredNamespaceRow, _>(self, query).await
    }
}

async fn fetch_with_heartbeat<Row, Noun>(
    connection: &mut Connection,
    query: RowQuery<'_, RowWithHeartbeat<Row>>,
) -> Result<Option<StandbyRow<Noun>>>
where
    Row: for<'r> FromRow<'r, <Database as sqlx::Database>::Row> + Send + Unpin,
    Noun: TryFrom<Row, Error: Into<Error>>,
{
    let Some(found) = query.fetch_optional(connection).await? else { return Ok(None) };
    let value = Noun::try_from(found.row).map_err(Into::into)?;
    Ok(Some(StandbyRow { value, heartbeat: found.heartbeat }))
}
