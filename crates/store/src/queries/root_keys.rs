//! Implements reads and writes of root keys.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, WorkspaceId};
use foundation::model::RootKey;
use serde_json::json;
use sqlx::{query, query_as, query_scalar};

use super::{Connection, fetch_all_as, fetch_optional_as};
use crate::rows::{RootKeyRow, StoredRootKeyRow};
use crate::{PageQuery, RootKeyReads, RootKeyWrites, StoredRootKey, to_search_text};

macro_rules! root_keys_where {
    ($condition:literal) => {
        concat!(
            "SELECT r.id, r.workspace_id, w.enabled AS workspace_enabled, r.start, r.name,
                r.permissions, r.created_at, r.expires_at, r.revoked_at,
                (SELECT u.last_used_at FROM root_key_uses u WHERE u.root_key_id = r.id)
                    AS last_used_at
            FROM root_keys r
            JOIN workspaces w ON w.id = r.workspace_id
            WHERE ",
            $condition
        )
    };
}

/// Selects a page of root keys that begins with the root key `$4`.
macro_rules! root_keys_from {
    ($comparison:literal, $order:literal) => {
        concat!(
            root_keys_where!("r.workspace_id = $1"),
            " AND ($2 = '' OR ",
            contains!("r.search", "$2"),
            ") AND ($3 < 0
                OR r.revoked_at IS NULL AND (r.expires_at IS NULL OR r.expires_at >= $3))
            AND ($4 = '' OR EXISTS (
                SELECT 1 FROM root_keys f
                WHERE f.id = $4 AND f.workspace_id = $1 AND (r.created_at, r.id) ",
            $comparison,
            " (f.created_at, f.id)))
            ORDER BY ",
            $order,
            " LIMIT $5"
        )
    };
}

#[async_trait]
impl RootKeyReads for Connection {
    async fn find_root_key_by_hash(&mut self, hash: &str) -> Result<Option<RootKey>> {
        fetch_optional_as::<RootKeyRow, _>(
            self,
            query_as(root_keys_where!("r.hash = $1")).bind(hash),
        )
        .await
    }

    async fn list_all_root_keys(&mut self, workspace: &WorkspaceId) -> Result<Vec<RootKey>> {
        fetch_all_as::<RootKeyRow, _>(
            self,
            query_as(root_keys_where!("r.workspace_id = $1 ORDER BY r.id")).bind(workspace),
        )
        .await
    }

    async fn list_root_keys(
        &mut self,
        workspace: &WorkspaceId,
        live_at: Option<Timestamp>,
        is_latest_first: bool,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<StoredRootKey>> {
        let sql = match is_latest_first {
            true => root_keys_from!("<=", "r.created_at DESC, r.id DESC"),
            false => root_keys_from!(">=", "r.created_at, r.id"),
        };
        let query = query_as(sql)
            .bind(workspace)
            .bind(&listing.search)
            .bind(live_at.unwrap_or(Timestamp(-1)))
            .bind(listing.start)
            .bind(listing.rows_max);
        fetch_all_as::<StoredRootKeyRow, _>(self, query).await
    }

    async fn find_root_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &KeyId,
    ) -> Result<Option<StoredRootKey>> {
        let sql = root_keys_where!("r.workspace_id = $1 AND r.id = $2");
        fetch_optional_as::<StoredRootKeyRow, _>(self, query_as(sql).bind(workspace).bind(id)).await
    }

    async fn list_non_expiring_root_keys(&mut self, max: i64) -> Result<Vec<RootKey>> {
        let sql = root_keys_where!(
            "r.revoked_at IS NULL AND r.expires_at IS NULL ORDER BY r.id LIMIT $1"
        );
        fetch_all_as::<RootKeyRow, _>(self, query_as(sql).bind(max)).await
    }
}

#[async_trait]
impl RootKeyWrites for Connection {
    async fn insert_root_key(&mut self, key: &RootKey, hash: &str) -> Result<()> {
        let sql = "
            INSERT INTO root_keys
                (id, workspace_id, hash, start, name, permissions, created_at, expires_at, search)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let name = key.name.as_deref().unwrap_or_default();
        query(sql)
            .bind(&key.id)
            .bind(&key.workspace_id)
            .bind(hash)
            .bind(&key.start)
            .bind(&key.name)
            .bind(json!(key.permissions).to_string())
            .bind(key.created_at)
            .bind(key.expires_at)
            .bind(to_search_text([key.id.as_str(), &key.start, name]))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn revoke_root_key(&mut self, id: &KeyId, now: Timestamp) -> Result<Option<WorkspaceId>> {
        let sql = "
            UPDATE root_keys
            SET revoked_at = $2
            WHERE id = $1 AND revoked_at IS NULL
            RETURNING workspace_id";
        Ok(query_scalar(sql).bind(id).bind(now).fetch_optional(self).await?)
    }

    async fn lock_root_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &KeyId,
    ) -> Result<Option<RootKey>> {
        let sql = locked!("SELECT id FROM root_keys WHERE workspace_id = $1 AND id = $2");
        query(sql).bind(workspace).bind(id).fetch_optional(&mut *self).await?;
        // Read after the lock, so that writes of its previous holder are visible.
        Ok(self.find_root_key(workspace, id).await?.map(|stored| stored.key))
    }

    async fn set_root_key_expiry(&mut self, id: &KeyId, expires_at: Timestamp) -> Result<()> {
        let sql = "UPDATE root_keys SET expires_at = $2 WHERE id = $1";
        query(sql).bind(id).bind(expires_at).execute(self).await?;
        Ok(())
    }

    async fn record_root_key_uses(&mut self, uses: &[(KeyId, Timestamp)]) -> Result<()> {
        let row = |(key, at): &(KeyId, Timestamp)| json!({ "key_id": key, "at": at });
        let rows: Vec<_> = uses.iter().map(row).collect();
        let sql = concat!(
            "INSERT INTO root_key_uses (root_key_id, last_used_at)
            SELECT item ->> 'key_id', CAST(item ->> 'at' AS BIGINT)
            FROM ",
            items!("$1"),
            " WHERE TRUE
            ON CONFLICT (root_key_id) DO UPDATE SET last_used_at = excluded.last_used_at
            WHERE excluded.last_used_at > root_key_uses.last_used_at"
        );
        query(sql).bind(json!(rows).to_string()).execute(self).await?;
        Ok(())
    }
}
