//! Implements reads and writes of data keys and sealed keys.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, WorkspaceId};
use foundation::vault::SealedDataKey;
use serde_json::json;
use sqlx::{query, query_as};

use super::Connection;
use crate::{VaultReads, VaultWrites};

#[async_trait]
impl VaultReads for Connection {
    async fn find_data_key(&mut self, workspace: &WorkspaceId) -> Result<Option<SealedDataKey>> {
        let sql = "
            SELECT id, workspace_id, master_id, sealed
            FROM data_keys
            WHERE workspace_id = $1";
        Ok(query_as(sql).bind(workspace).fetch_optional(self).await?)
    }

    async fn list_data_keys(&mut self) -> Result<Vec<SealedDataKey>> {
        let sql = "SELECT id, workspace_id, master_id, sealed FROM data_keys ORDER BY id";
        Ok(query_as(sql).fetch_all(self).await?)
    }

    async fn list_sealed_keys(
        &mut self,
        workspace: &WorkspaceId,
        keys: &[KeyId],
    ) -> Result<Vec<(KeyId, String)>> {
        let sql = concat!(
            "SELECT s.key_id, s.sealed
            FROM sealed_keys s
            JOIN data_keys d ON d.id = s.data_key_id AND d.workspace_id = $1
            WHERE s.key_id ",
            is_one_of!("$2")
        );
        Ok(query_as(sql).bind(workspace).bind(json!(keys).to_string()).fetch_all(self).await?)
    }
}

#[async_trait]
impl VaultWrites for Connection {
    async fn insert_data_key(&mut self, key: &SealedDataKey, now: Timestamp) -> Result<()> {
        let sql = "
            INSERT INTO data_keys (id, workspace_id, master_id, sealed, created_at)
            VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (workspace_id) DO NOTHING";
        query(sql)
            .bind(&key.id)
            .bind(&key.workspace_id)
            .bind(&key.master_id)
            .bind(&key.sealed)
            .bind(now)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn reseal_data_key(&mut self, key: &SealedDataKey) -> Result<()> {
        let sql = "UPDATE data_keys SET master_id = $2, sealed = $3 WHERE id = $1";
        query(sql).bind(&key.id).bind(&key.master_id).bind(&key.sealed).execute(self).await?;
        Ok(())
    }

    async fn insert_sealed_keys(
        &mut self,
        workspace: &WorkspaceId,
        sealed: &[(KeyId, String)],
    ) -> Result<()> {
        let row = |(key, sealed): &(KeyId, String)| json!({ "key_id": key, "sealed": sealed });
        let rows: Vec<_> = sealed.iter().map(row).collect();
        let sql = concat!(
            "INSERT INTO sealed_keys (key_id, data_key_id, sealed)
            SELECT item ->> 'key_id', d.id, item ->> 'sealed'
            FROM data_keys d CROSS JOIN ",
            items!("$2"),
            " WHERE d.workspace_id = $1"
        );
        query(sql).bind(workspace).bind(json!(rows).to_string()).execute(self).await?;
        Ok(())
    }
}
