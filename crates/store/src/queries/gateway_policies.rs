//! Implements reads and writes of gateway policies.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::{GatewayPolicyId, WorkspaceId};
use foundation::model::{GatewayPolicy, GatewayPolicyConfig};
use serde_json::to_string;
use sqlx::{query, query_as, query_scalar};

use super::{Connection, fetch_all_as, fetch_optional_as};
use crate::rows::{GatewayPolicyRow, StoredGatewayPolicyRow};
use crate::{
    GatewayPolicyReads, GatewayPolicyWrites, GatewaySecrets, PageOrder, PageQuery,
    StoredGatewayPolicy, to_search_text,
};

macro_rules! gateway_policies_where {
    ($condition:expr) => {
        concat!(
            "SELECT p.id, p.workspace_id, p.name, p.config, p.created_at, p.updated_at,
                w.enabled AS workspace_enabled, p.secret_hash, p.previous_secret_hash,
                p.previous_secret_expires_at
            FROM gateway_policies p
            JOIN workspaces w ON w.id = p.workspace_id
            WHERE p.deleted_at IS NULL AND ",
            $condition
        )
    };
}

macro_rules! policies_of_workspace {
    ($condition:expr) => {
        gateway_policies_where!(concat!("p.workspace_id = $1 AND ", $condition))
    };
}

#[async_trait]
impl GatewayPolicyReads for Connection {
    async fn find_gateway_policy_by_secret(
        &mut self,
        hash: &str,
    ) -> Result<Option<StoredGatewayPolicy>> {
        let sql = gateway_policies_where!(
            "(p.secret_hash = $1 OR p.previous_secret_hash = $1)
            ORDER BY p.secret_hash = $1 DESC LIMIT 1"
        );
        fetch_optional_as::<StoredGatewayPolicyRow, _>(self, query_as(sql).bind(hash)).await
    }

    async fn find_named_gateway_policy(
        &mut self,
        id_or_name: &str,
    ) -> Result<Option<StoredGatewayPolicy>> {
        let sql = gateway_policies_where!(
            "(p.id = $1 OR (p.name = $1 AND substr(p.name, 1, length($2)) <> $2))
            ORDER BY p.id = $1 DESC, p.created_at, p.id LIMIT 1"
        );
        let query = query_as(sql).bind(id_or_name).bind(GatewayPolicyId::PREFIX);
        fetch_optional_as::<StoredGatewayPolicyRow, _>(self, query).await
    }

    async fn find_gateway_policy(
        &mut self,
        workspace: &WorkspaceId,
        id_or_name: &str,
    ) -> Result<Option<StoredGatewayPolicy>> {
        let sql = gateway_policies_where!(
            "p.workspace_id = $1 AND (p.id = $2 OR p.name = $2) ORDER BY p.id = $2 DESC LIMIT 1"
        );
        let query = query_as(sql).bind(workspace).bind(id_or_name);
        fetch_optional_as::<StoredGatewayPolicyRow, _>(self, query).await
    }

    async fn list_gateway_policies(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<GatewayPolicy>> {
        let sql = page_in_order!(policies_of_workspace, listing, "p.id", "p.name", "p.search");
        let query = query_as(sql).bind(workspace).bind(listing.start);
        fetch_all_as::<GatewayPolicyRow, _>(
            self,
            query.bind(&listing.search).bind(listing.rows_max),
        )
        .await
    }
}

#[async_trait]
impl GatewayPolicyWrites for Connection {
    async fn lock_gateway_policies(&mut self, workspace: &WorkspaceId) -> Result<i64> {
        let sql = locked_for_no_key_update!("SELECT id FROM workspaces WHERE id = $1");
        query(sql).bind(workspace).fetch_optional(&mut *self).await?;
        let sql = "
            SELECT COUNT(*)
            FROM gateway_policies
            WHERE workspace_id = $1 AND deleted_at IS NULL";
        Ok(query_scalar(sql).bind(workspace).fetch_one(self).await?)
    }

    async fn insert_gateway_policy(
        &mut self,
        policy: &GatewayPolicy,
        secret_hash: &str,
    ) -> Result<()> {
        let sql = "
            INSERT INTO gateway_policies
                (id, workspace_id, name, config, secret_hash, created_at, search)
            VALUES ($1, $2, $3, $4, $5, $6, $7)";
        query(sql)
            .bind(&policy.id)
            .bind(&policy.workspace_id)
            .bind(&policy.name)
            .bind(encode(&policy.config)?)
            .bind(secret_hash)
            .bind(policy.created_at)
            .bind(search_text(policy))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn lock_gateway_policy(
        &mut self,
        workspace: &WorkspaceId,
        id_or_name: &str,
    ) -> Result<Option<StoredGatewayPolicy>> {
        let sql = locked!(
            "SELECT id FROM gateway_policies
            WHERE workspace_id = $1 AND (id = $2 OR name = $2) AND deleted_at IS NULL"
        );
        query(sql).bind(workspace).bind(id_or_name).fetch_all(&mut *self).await?;
        // Read after the lock, so that writes of its previous holder are visible.
        self.find_gateway_policy(workspace, id_or_name).await
    }

    async fn update_gateway_policy(&mut self, policy: &GatewayPolicy) -> Result<()> {
        let sql = "
            UPDATE gateway_policies
            SET name = $2, config = $3, updated_at = $4, search = $5
            WHERE id = $1";
        query(sql)
            .bind(&policy.id)
            .bind(&policy.name)
            .bind(encode(&policy.config)?)
            .bind(policy.updated_at)
            .bind(search_text(policy))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn set_gateway_secrets(
        &mut self,
        id: &GatewayPolicyId,
        secrets: &GatewaySecrets,
    ) -> Result<()> {
        let sql = "
            UPDATE gateway_policies
            SET secret_hash = $2, previous_secret_hash = $3, previous_secret_expires_at = $4
            WHERE id = $1";
        let previous = secrets.previous.as_ref();
        query(sql)
            .bind(id)
            .bind(&secrets.hash)
            .bind(previous.map(|(hash, _)| hash))
            .bind(previous.map(|(_, expires_at)| *expires_at))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn delete_gateway_policy(&mut self, id: &GatewayPolicyId, now: Timestamp) -> Result<()> {
        let sql = "UPDATE gateway_policies SET deleted_at = $2 WHERE id = $1";
        query(sql).bind(id).bind(now).execute(self).await?;
        Ok(())
    }

    async fn find_deleted_gateway_policy(
        &mut self,
        workspace: &WorkspaceId,
        id: &GatewayPolicyId,
    ) -> Result<Option<String>> {
        let sql = "
            SELECT name
            FROM gateway_policies
            WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NOT NULL";
        Ok(query_scalar(sql).bind(workspace).bind(id).fetch_optional(self).await?)
    }

    async fn restore_gateway_policy(&mut self, id: &GatewayPolicyId) -> Result<()> {
        let sql = "UPDATE gateway_policies SET deleted_at = NULL WHERE id = $1";
        query(sql).bind(id).execute(self).await?;
        Ok(())
    }
}

fn encode(config: &GatewayPolicyConfig) -> Result<String> {
    to_string(config).map_err(|e| Error::Internal(format!("failed to encode a policy: {e}")))
}

fn search_text(policy: &GatewayPolicy) -> String {
    to_search_text([policy.id.as_str(), &policy.name])
}
