//! What changes something. Called on a transaction only.

use async_trait::async_trait;
use serde_json::json;
use sqlx::{query, query_as, query_scalar};

use super::Connection;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{ApiId, KeyId, WorkspaceId};
use crate::model::{
    Account, Api, ApiSettings, Credits, Key, Meta, Purse, Ratelimit, RefillInterval, RootKey,
};
use crate::store::rows::AccountRow;
use crate::store::{AuditAct, AuditEntry, Owner, Reads as _, StoredKey, Writes};

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

macro_rules! upsert_ratelimits {
    ($owner:literal) => {
        concat!(
            "INSERT INTO ratelimits (",
            $owner,
            ", workspace_id, id, name, \"limit\", duration_ms, auto_apply)
            SELECT $1, $2, item ->> 'id', item ->> 'name', CAST(item ->> 'limit' AS BIGINT),
                CAST(item ->> 'duration_ms' AS BIGINT), CAST(item ->> 'auto_apply' AS BOOLEAN)
            FROM ",
            items!("$3"),
            " WHERE TRUE
            ON CONFLICT (",
            $owner,
            ", name) DO UPDATE SET \"limit\" = excluded.\"limit\",
                duration_ms = excluded.duration_ms, auto_apply = excluded.auto_apply"
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

    async fn insert_root_key(&mut self, key: &RootKey, hash: &str) -> Result<()> {
        let sql = "
            INSERT INTO root_keys
                (id, workspace_id, hash, start, name, permissions, created_at, expires_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
        query(sql)
            .bind(&key.id)
            .bind(&key.workspace_id)
            .bind(hash)
            .bind(&key.start)
            .bind(&key.name)
            .bind(json!(key.permissions).to_string())
            .bind(key.created_at)
            .bind(key.expires_at)
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

    async fn insert_api(&mut self, api: &Api) -> Result<()> {
        let sql = "INSERT INTO apis (id, workspace_id, name, created_at) VALUES ($1, $2, $3, $4)";
        query(sql)
            .bind(&api.id)
            .bind(&api.workspace_id)
            .bind(&api.name)
            .bind(api.created_at)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn set_api(&mut self, api: &Api) -> Result<()> {
        let sql = "
            UPDATE apis
            SET default_prefix = $2, default_byte_length = $3, recoverable_keys = $4,
                delete_protection = $5, allowed_networks = $6
            WHERE id = $1";
        let ApiSettings {
            default_prefix,
            default_byte_length,
            recoverable_keys,
            delete_protection,
            allowed_networks,
        } = &api.settings;
        let networks =
            allowed_networks.as_ref().map(|networks| json!(networks.texts()).to_string());
        query(sql)
            .bind(&api.id)
            .bind(default_prefix)
            .bind(default_byte_length.map(i64::from))
            .bind(recoverable_keys)
            .bind(delete_protection)
            .bind(networks)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn lock_api(&mut self, workspace: &WorkspaceId, id: &ApiId) -> Result<Option<Api>> {
        let sql = locked!("SELECT id FROM apis WHERE workspace_id = $1 AND id = $2");
        query(sql).bind(workspace).bind(id).fetch_optional(&mut *self).await?;
        // Only now: what the one who held it before has written is seen.
        self.api(workspace, id).await
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
        // Only now: what the one who held it before has written is seen.
        self.key(workspace, id).await
    }

    async fn insert_key(&mut self, key: &Key) -> Result<()> {
        let sql = "
            INSERT INTO keys
                (id, workspace_id, api_id, hash, start, prefix, byte_length, name, meta,
                identity_id, enabled, expires_at, created_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
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
            .bind(key.enabled)
            .bind(key.expires_at)
            .bind(key.created_at)
            .execute(&mut *self)
            .await?;
        self.set_credits(&key.id, key.credits.as_ref()).await
    }

    async fn update_key(&mut self, key: &Key) -> Result<()> {
        let sql = "
            UPDATE keys
            SET name = $2, meta = $3, identity_id = $4, enabled = $5, expires_at = $6,
                updated_at = $7
            WHERE id = $1";
        query(sql)
            .bind(&key.id)
            .bind(&key.name)
            .bind(key.meta.as_ref().map(Meta::as_str))
            .bind(&key.identity_id)
            .bind(key.enabled)
            .bind(key.expires_at)
            .bind(key.updated_at)
            .execute(self)
            .await?;
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

    async fn purge_key(&mut self, id: &KeyId) -> Result<()> {
        query("DELETE FROM keys WHERE id = $1").bind(id).execute(self).await?;
        Ok(())
    }

    async fn set_ratelimits(
        &mut self,
        workspace: &WorkspaceId,
        owner: Owner<'_>,
        limits: &[Ratelimit],
    ) -> Result<()> {
        let (owner, delete, upsert) = match owner {
            Owner::Key(id) => {
                (id.as_str(), delete_ratelimits!("key_id"), upsert_ratelimits!("key_id"))
            }
            Owner::Identity(id) => {
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

    async fn lock_account(&mut self, key: &KeyId) -> Result<Option<Account>> {
        let sql = locked!(concat!(account!(), " WHERE id = $1 AND deleted_at IS NULL"));
        let row: Option<AccountRow> = query_as(sql).bind(key).fetch_optional(&mut *self).await?;
        let Some((credits, now)) = row.and_then(AccountRow::into_credits) else { return Ok(None) };
        // Only now: what the one who held it before has written is seen.
        let purses = query_as(purses!()).bind(key).fetch_all(self).await?;
        Ok(Some(Account { credits, purses, now }))
    }

    async fn set_credits(&mut self, key: &KeyId, credits: Option<&Credits>) -> Result<()> {
        let refill = credits.and_then(|credits| credits.refill);
        let day = refill.and_then(|refill| match refill.interval {
            RefillInterval::Daily => None,
            RefillInterval::Monthly { day } => Some(i64::from(day)),
        });
        let sql = "
            UPDATE keys
            SET credits = $2, credits_version = credits_version + 1, refill_amount = $3,
                refill_day = $4, refilled = $5
            WHERE id = $1";
        query(sql)
            .bind(key)
            .bind(credits.map(|credits| credits.balance))
            .bind(refill.map(|refill| refill.amount))
            .bind(day)
            .bind(credits.map_or(0, |credits| credits.refilled))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn move_credits(&mut self, key: &KeyId, credits: &Credits) -> Result<()> {
        let sql = "UPDATE keys SET credits = $2, credits_version = $3, refilled = $4 WHERE id = $1";
        query(sql)
            .bind(key)
            .bind(credits.balance)
            .bind(credits.version)
            .bind(credits.refilled)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn put_purse(&mut self, key: &KeyId, purse: &Purse) -> Result<()> {
        let sql = "
            INSERT INTO purses
                (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by, withheld_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
            ON CONFLICT (key_id, epoch) DO UPDATE SET granted = excluded.granted,
                spent = excluded.spent, asked_at = excluded.asked_at,
                asked_by = excluded.asked_by, withheld_at = excluded.withheld_at";
        query(sql)
            .bind(key)
            .bind(purse.epoch)
            .bind(purse.life)
            .bind(purse.granted)
            .bind(purse.spent)
            .bind(purse.opened_at)
            .bind(purse.asked_at)
            .bind(&purse.asked_by)
            .bind(purse.withheld_at)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn drop_purse(&mut self, key: &KeyId, epoch: i64) -> Result<()> {
        let sql = "DELETE FROM purses WHERE key_id = $1 AND epoch = $2";
        query(sql).bind(key).bind(epoch).execute(self).await?;
        Ok(())
    }

    async fn drop_purses(&mut self, key: &KeyId) -> Result<()> {
        query("DELETE FROM purses WHERE key_id = $1").bind(key).execute(self).await?;
        Ok(())
    }

    async fn tell_of_purse(&mut self, key: &KeyId, epoch: i64, spent: i64) -> Result<()> {
        let sql = "UPDATE purses SET spent = $3 WHERE key_id = $1 AND epoch = $2 AND spent < $3";
        query(sql).bind(key).bind(epoch).bind(spent).execute(self).await?;
        Ok(())
    }

    async fn look_after_purses(&mut self, spent: &[(KeyId, i64, i64)]) -> Result<()> {
        let rows: Vec<_> = spent
            .iter()
            .map(|(key, epoch, spent)| json!({ "key": key, "epoch": epoch, "spent": spent }))
            .collect();
        let sql = concat!(
            "UPDATE purses SET asked_at = ",
            now_ms!(),
            ", spent = CASE WHEN spent < CAST(item ->> 'spent' AS BIGINT)
                THEN CAST(item ->> 'spent' AS BIGINT) ELSE spent END
            FROM ",
            items!("$1"),
            " WHERE key_id = item ->> 'key' AND epoch = CAST(item ->> 'epoch' AS BIGINT)
                AND withheld_at IS NULL"
        );
        query(sql).bind(json!(rows).to_string()).execute(self).await?;
        Ok(())
    }

    async fn account_for_purse(
        &mut self,
        key: &KeyId,
        epoch: i64,
        replica: &str,
        spent: i64,
    ) -> Result<()> {
        let sql = "
            INSERT INTO purse_accounts (key_id, epoch, replica_id)
            SELECT key_id, epoch, $3 FROM purses WHERE key_id = $1 AND epoch = $2
            ON CONFLICT (key_id, epoch, replica_id) DO NOTHING";
        query(sql).bind(key).bind(epoch).bind(replica).execute(&mut *self).await?;
        self.tell_of_purse(key, epoch, spent).await
    }

    async fn register_replica(&mut self, id: &str, within_ms: i64) -> Result<i64> {
        let sql = concat!(
            "INSERT INTO replicas (id, started_at, seen_at) VALUES ($1, ",
            now_ms!(),
            ", ",
            now_ms!(),
            ") ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at"
        );
        query(sql).bind(id).execute(&mut *self).await?;
        let sql = concat!("SELECT COUNT(*) FROM replicas WHERE seen_at > ", now_ms!(), " - $1");
        Ok(query_scalar(sql).bind(within_ms).fetch_one(self).await?)
    }

    async fn prune_replicas(&mut self) -> Result<()> {
        let sql = concat!(
            "DELETE FROM replicas
            WHERE NOT EXISTS (SELECT 1 FROM purses WHERE withheld_at IS NOT NULL) AND seen_at < ",
            now_ms!(),
            " - 86400000"
        );
        query(sql).execute(self).await?;
        Ok(())
    }

    async fn drop_replica(&mut self, id: &str) -> Result<()> {
        query("DELETE FROM replicas WHERE id = $1").bind(id).execute(self).await?;
        Ok(())
    }

    async fn insert_audit(&mut self, act: &AuditAct<'_>, entries: &[AuditEntry]) -> Result<()> {
        let sql = concat!(
            "INSERT INTO audit
                (id, workspace_id, at, event, actor_type, actor_id, actor_name, remote_address,
                user_agent, targets, correlation_id)
            SELECT item ->> 'id', $1, $2, item ->> 'event', $3, $4, $5, $6, $7, item ->> 'targets',
                $8
            FROM ",
            items!("$9")
        );
        query(sql)
            .bind(act.workspace_id)
            .bind(act.at)
            .bind(act.actor_type)
            .bind(act.actor_id)
            .bind(act.actor_name)
            .bind(act.remote_address)
            .bind(act.user_agent)
            .bind(act.correlation_id)
            .bind(json!(entries).to_string())
            .execute(self)
            .await?;
        Ok(())
    }

    async fn insert_changes(&mut self, subjects: &[String]) -> Result<()> {
        let sql = concat!(
            "INSERT INTO changes (at, subject) SELECT ",
            now_ms!(),
            ", item FROM ",
            texts!("$1")
        );
        query(sql).bind(json!(subjects).to_string()).execute(self).await?;
        Ok(())
    }

    async fn keep_reply(
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

    async fn prune_changes(&mut self) -> Result<()> {
        let sql = concat!("DELETE FROM changes WHERE at < ", now_ms!(), " - 86400000");
        query(sql).execute(&mut *self).await?;
        let sql = concat!("DELETE FROM kept_replies WHERE at < ", now_ms!(), " - 86400000");
        query(sql).execute(self).await?;
        Ok(())
    }
}
