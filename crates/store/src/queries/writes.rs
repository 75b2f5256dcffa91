//! Implements writes of APIs, keys and stored replies. Called only on a transaction.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::home::Home;
use foundation::id::{ApiId, KeyId, WorkspaceId};
use foundation::model::{Api, ApiSettings, Key, Meta, Ratelimit};
use serde_json::json;
use sqlx::{query, query_scalar};

use super::Connection;
use crate::{
    CreditWrites as _, LimitOwner, Reads as _, StoredKey, Writes, key_search_text, to_search_text,
};

macro_rules! delete_ratelimits {
    ($owner:literal) => {
        concat!(
            "DELETE FROM ratelimits WHERE ",
            $owner,
            " = $1 AND name NOT IN (SELECT item FROM ",
            texts!("$2"),
            ")"
        )
    };
}

/// Records the uses of keys that still exist, in the order of their ids.
pub const RECORD_KEY_USES_SQL: &str = concat!(
    "INSERT INTO key_uses (key_id, last_used_at)
    SELECT e.id, CAST(item ->> 'at' AS BIGINT)
    FROM ",
    rows_of_items!("$1", "keys", "id", "e.id = item ->> 'key_id'"),
    " WHERE TRUE ORDER BY e.id
    ON CONFLICT (key_id) DO UPDATE SET last_used_at = excluded.last_used_at
    WHERE excluded.last_used_at > key_uses.last_used_at"
);

macro_rules! upsert_ratelimits {
    ($owner:literal) => {
        concat!(
            "INSERT INTO ratelimits (",
            $owner,
            ", workspace_id, id, name, \"limit\", duration_ms, auto_apply, is_async)
            SELECT $1, $2, item ->> 'id', item ->> 'name', CAST(item ->> 'limit' AS BIGINT),
                CAST(item ->> 'duration_ms' AS BIGINT), CAST(item ->> 'auto_apply' AS BOOLEAN),
                CAST(item ->> 'is_async' AS BOOLEAN)
            FROM ",
            items!("$3"),
            " WHERE TRUE
            ON CONFLICT (",
            $owner,
            ", name) DO UPDATE SET \"limit\" = excluded.\"limit\",
                duration_ms = excluded.duration_ms, auto_apply = excluded.auto_apply,
                is_async = excluded.is_async"
        )
    };
}

#[async_trait]
impl Writes for Connection {
    async fn insert_workspace(
        &mut self,
        id: &WorkspaceId,
        name: &str,
        now: Timestamp,
    ) -> Result<bool> {
        let sql = "
            INSERT INTO workspaces (id, name, created_at)
            VALUES ($1, $2, $3)
            ON CONFLICT (id) DO NOTHING";
        let done = query(sql).bind(id).bind(name).bind(now).execute(self).await?;
        Ok(done.rows_affected() == 1)
    }

    async fn lock_workspace_name(&mut self, id: &WorkspaceId) -> Result<Option<String>> {
        let sql = locked_for_no_key_update!("SELECT name FROM workspaces WHERE id = $1");
        Ok(query_scalar(sql).bind(id).fetch_optional(self).await?)
    }

    async fn set_workspace_name(&mut self, id: &WorkspaceId, name: &str) -> Result<()> {
        let sql = "UPDATE workspaces SET name = $2 WHERE id = $1";
        query(sql).bind(id).bind(name).execute(self).await?;
        Ok(())
    }

    async fn insert_api(&mut self, api: &Api) -> Result<()> {
        let sql = "
            INSERT INTO apis (id, workspace_id, name, created_at, search, home)
            VALUES ($1, $2, $3, $4, $5, $6)";
        query(sql)
            .bind(&api.id)
            .bind(&api.workspace_id)
            .bind(&api.name)
            .bind(api.created_at)
            .bind(to_search_text([api.id.as_str(), &api.name]))
            .bind(api.home.as_ref().map(Home::to_string))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn update_api(&mut self, api: &Api) -> Result<()> {
        let sql = "
            UPDATE apis
            SET default_prefix = $2, default_byte_length = $3, recoverable_keys = $4,
                delete_protection = $5, allowed_networks = $6, name = $7, search = $8
            WHERE id = $1";
        let ApiSettings {
            default_prefix,
            default_byte_length,
            allows_recoverable_keys,
            is_delete_protected,
            allowed_networks,
        } = &api.settings;
        let networks =
            allowed_networks.as_ref().map(|networks| json!(networks.to_strings()).to_string());
        query(sql)
            .bind(&api.id)
            .bind(default_prefix)
            .bind(default_byte_length.map(i64::from))
            .bind(allows_recoverable_keys)
            .bind(is_delete_protected)
            .bind(networks)
            .bind(&api.name)
            .bind(to_search_text([api.id.as_str(), &api.name]))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn lock_api(&mut self, workspace: &WorkspaceId, id: &ApiId) -> Result<Option<Api>> {
        let sql = locked!("SELECT id FROM apis WHERE workspace_id = $1 AND id = $2");
        query(sql).bind(workspace).bind(id).fetch_optional(&mut *self).await?;
        // Read after the lock, so that writes of its previous holder are visible.
        self.find_api(workspace, id).await
    }

    async fn delete_api(
        &mut self,
        workspace: &WorkspaceId,
        id: &ApiId,
        now: Timestamp,
    ) -> Result<bool> {
        let sql = "
            UPDATE apis
            SET deleted_at = $3
            WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL";
        let done = query(sql).bind(workspace).bind(id).bind(now).execute(self).await?;
        Ok(done.rows_affected() == 1)
    }

    async fn lock_key(&mut self, workspace: &WorkspaceId, id: &KeyId) -> Result<Option<StoredKey>> {
        let sql = locked!("SELECT id FROM keys WHERE workspace_id = $1 AND id = $2");
        query(sql).bind(workspace).bind(id).fetch_optional(&mut *self).await?;
        // Read after the lock, so that writes of its previous holder are visible.
        self.find_key(workspace, id).await
    }

    async fn insert_key(&mut self, key: &Key) -> Result<()> {
        let sql = "
            INSERT INTO keys
                (id, workspace_id, api_id, hash, start, prefix, byte_length, name, meta,
                identity_id, owner_id, environment, enabled, expires_at, created_at, search)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
        query(sql)
            .bind(&key.id)
            .bind(&key.workspace_id)
            .bind(&key.api_id)
            .bind(&key.hash)
            .bind(&key.start)
            .bind(&key.prefix)
            .bind(i64::from(key.byte_length))
            .bind(&key.name)
            .bind(key.meta.as_ref().map(Meta::as_str))
            .bind(&key.identity_id)
            .bind(&key.owner_id)
            .bind(&key.environment)
            .bind(key.is_enabled)
            .bind(key.expires_at)
            .bind(key.created_at)
            .bind(key_search_text(key))
            .execute(&mut *self)
            .await?;
        self.set_credits(&key.id, key.credits.as_ref()).await
    }

    async fn update_key(&mut self, key: &Key) -> Result<()> {
        let search = key_search_text(key);
        let sql = "
            UPDATE keys
            SET name = $2, meta = $3, identity_id = $4, owner_id = $5, enabled = $6,
                expires_at = $7, updated_at = $8, search = $9
            WHERE id = $1
            RETURNING search";
        let written: Option<String> = query_scalar(sql)
            .bind(&key.id)
            .bind(&key.name)
            .bind(key.meta.as_ref().map(Meta::as_str))
            .bind(&key.identity_id)
            .bind(&key.owner_id)
            .bind(key.is_enabled)
            .bind(key.expires_at)
            .bind(key.updated_at)
            .bind(&search)
            .fetch_optional(&mut *self)
            .await?;
        // A search text that is the same as before, as after a change of case, looks to the trigger for replicas of the
        // previous version as if it had not been written.
        if written.is_some_and(|written| written != search) {
            let sql = "UPDATE keys SET search = $2 WHERE id = $1";
            query(sql).bind(&key.id).bind(search).execute(self).await?;
        }
        Ok(())
    }

    async fn delete_key(&mut self, id: &KeyId, now: Timestamp) -> Result<()> {
        query("UPDATE keys SET deleted_at = $2 WHERE id = $1")
            .bind(id)
            .bind(now)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn record_key_uses(&mut self, uses: &[(KeyId, Timestamp)]) -> Result<()> {
        let row = |(key, at): &(KeyId, Timestamp)| json!({ "key_id": key, "at": at });
        let rows: Vec<_> = uses.iter().map(row).collect();
        query(RECORD_KEY_USES_SQL).bind(json!(rows).to_string()).execute(self).await?;
        Ok(())
    }

    async fn purge_key(&mut self, id: &KeyId) -> Result<()> {
        query("DELETE FROM keys WHERE id = $1").bind(id).execute(&mut *self).await?;
        query("DELETE FROM key_uses WHERE key_id = $1").bind(id).execute(self).await?;
        Ok(())
    }

    async fn delete_keys(&mut self, api: &ApiId, now: Timestamp, max: i64) -> Result<Vec<KeyId>> {
        let sql = "
            UPDATE keys
            SET deleted_at = $2
            WHERE id IN (
                SELECT id FROM keys WHERE api_id = $1 AND deleted_at IS NULL ORDER BY id LIMIT $3)
                AND deleted_at IS NULL
            RETURNING id";
        Ok(query_scalar(sql).bind(api).bind(now).bind(max).fetch_all(self).await?)
    }

    async fn purge_keys(&mut self, api: &ApiId, max: i64) -> Result<Vec<KeyId>> {
        let sql = "
            DELETE FROM keys
            WHERE id IN (SELECT id FROM keys WHERE api_id = $1 ORDER BY id LIMIT $2)
            RETURNING id";
        let purged: Vec<KeyId> =
            query_scalar(sql).bind(api).bind(max).fetch_all(&mut *self).await?;
        let sql = concat!("DELETE FROM key_uses WHERE key_id ", is_one_of!("$1"));
        query(sql).bind(json!(purged).to_string()).execute(self).await?;
        Ok(purged)
    }

    async fn replace_ratelimits(
        &mut self,
        workspace: &WorkspaceId,
        owner: LimitOwner<'_>,
        limits: &[Ratelimit],
    ) -> Result<()> {
        let (owner, delete, upsert) = match owner {
            LimitOwner::Key(id) => {
                (id.as_str(), delete_ratelimits!("key_id"), upsert_ratelimits!("key_id"))
            }
            LimitOwner::Identity(id) => {
                (id.as_str(), delete_ratelimits!("identity_id"), upsert_ratelimits!("identity_id"))
            }
        };
        let names = json!(limits.iter().map(|limit| &limit.name).collect::<Vec<_>>()).to_string();
        let rows: Vec<_> = limits
            .iter()
            .map(|limit| {
                json!({
                    "id": limit.id, "name": limit.name, "limit": limit.limit,
                    "duration_ms": limit.duration_ms, "auto_apply": limit.auto_apply,
                    "is_async": limit.is_approximate,
                })
            })
            .collect();
        query(delete).bind(owner).bind(names).execute(&mut *self).await?;
        if !limits.is_empty() {
            query(upsert)
                .bind(owner)
                .bind(workspace)
                .bind(json!(rows).to_string())
                .execute(self)
                .await?;
        }
        Ok(())
    }

    async fn insert_stored_reply(
        &mut self,
        root_key: &KeyId,
        name: &str,
        request: &str,
        sealed: &str,
    ) -> Result<bool> {
        let sql = concat!(
            "INSERT INTO kept_replies (root_key_id, name, request, sealed, at)
            VALUES ($1, $2, $3, $4, ",
            now_ms!(),
            ") ON CONFLICT (root_key_id, name) DO NOTHING"
        );
        let query = query(sql).bind(root_key).bind(name).bind(request).bind(sealed);
        Ok(query.execute(self).await?.rows_affected() == 1)
    }
}
