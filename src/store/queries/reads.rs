//! What only reads.

use async_trait::async_trait;
use sqlx::{query_as, query_scalar};

use super::Connection;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{ApiId, IdentityId, KeyId, WorkspaceId};
use crate::model::{Account, Api, RootKey, Withheld};
use crate::store::rows::{AccountRow, ApiRow, KeyAccountRow, KeyRow, RootKeyRow};
use crate::store::{Change, Listing, Reads, StoredEntry, StoredKey, WantedEntries};

macro_rules! root_keys_where {
    ($condition:literal) => {
        concat!(
            "SELECT r.id, r.workspace_id, w.enabled AS workspace_enabled, r.start, r.name,
                r.permissions, r.created_at, r.expires_at, r.revoked_at
            FROM root_keys r
            JOIN workspaces w ON w.id = r.workspace_id
            WHERE ",
            $condition
        )
    };
}

macro_rules! apis_where {
    ($condition:literal) => {
        concat!(
            "SELECT id, workspace_id, name, default_prefix, default_byte_length, recoverable_keys,
                delete_protection, allowed_networks, created_at, deleted_at
            FROM apis
            WHERE workspace_id = $1 AND ",
            $condition
        )
    };
}

macro_rules! keys_where {
    ($condition:literal) => {
        concat!(
            "SELECT k.id, k.workspace_id, k.api_id, k.hash, k.start, k.prefix, k.byte_length,
                k.name, k.meta, k.identity_id, k.enabled, k.expires_at, k.credits,
                k.credits_version, k.refill_amount, k.refill_day, k.refilled, k.created_at,
                k.updated_at, a.allowed_networks, ",
            ratelimits_of!("l.key_id = k.id"),
            ", ",
            permissions_of!("key_permissions kp ON kp.permission_id = p.id WHERE kp.key_id = k.id"),
            ", (SELECT ",
            array!("kr.role_id"),
            " FROM key_roles kr WHERE kr.key_id = k.id) AS role_ids
            FROM keys k
            JOIN apis a ON a.id = k.api_id AND a.deleted_at IS NULL
            WHERE k.deleted_at IS NULL AND ",
            $condition
        )
    };
}

macro_rules! withheld {
    ($condition:literal) => {
        concat!(
            "SELECT p.key_id, k.workspace_id, p.epoch, p.withheld_at AS since,
                CASE WHEN p.granted > p.spent THEN p.granted - p.spent ELSE 0 END AS units
            FROM purses p
            JOIN keys k ON k.id = p.key_id
            WHERE p.withheld_at IS NOT NULL AND ",
            $condition,
            " ORDER BY p.withheld_at, p.key_id"
        )
    };
}

#[async_trait]
impl Reads for Connection {
    async fn root_key_by_hash(&mut self, hash: &str) -> Result<Option<RootKey>> {
        query_as::<_, RootKeyRow>(root_keys_where!("r.hash = $1"))
            .bind(hash)
            .fetch_optional(self)
            .await?
            .map(RootKey::try_from)
            .transpose()
    }

    async fn root_keys(&mut self, workspace: &WorkspaceId) -> Result<Vec<RootKey>> {
        query_as::<_, RootKeyRow>(root_keys_where!("r.workspace_id = $1 ORDER BY r.id"))
            .bind(workspace)
            .fetch_all(self)
            .await?
            .into_iter()
            .map(RootKey::try_from)
            .collect()
    }

    async fn api(&mut self, workspace: &WorkspaceId, id: &ApiId) -> Result<Option<Api>> {
        query_as::<_, ApiRow>(apis_where!("id = $2"))
            .bind(workspace)
            .bind(id)
            .fetch_optional(self)
            .await?
            .map(Api::try_from)
            .transpose()
    }

    async fn apis(&mut self, workspace: &WorkspaceId) -> Result<Vec<Api>> {
        query_as::<_, ApiRow>(apis_where!("deleted_at IS NULL ORDER BY id"))
            .bind(workspace)
            .fetch_all(self)
            .await?
            .into_iter()
            .map(Api::try_from)
            .collect()
    }

    async fn key(&mut self, workspace: &WorkspaceId, id: &KeyId) -> Result<Option<StoredKey>> {
        query_as::<_, KeyRow>(keys_where!("k.workspace_id = $1 AND k.id = $2"))
            .bind(workspace)
            .bind(id)
            .fetch_optional(self)
            .await?
            .map(StoredKey::try_from)
            .transpose()
    }

    async fn keys_of(
        &mut self,
        workspace: &WorkspaceId,
        api: &ApiId,
        identity: Option<&IdentityId>,
        listing: &Listing<'_>,
    ) -> Result<Vec<StoredKey>> {
        // Two statements, for each has an index that yields the page in its order.
        let rows: Vec<KeyRow> = match identity {
            None => {
                let sql = keys_where!(
                    "k.workspace_id = $1 AND k.api_id = $2 AND k.id >= $3
                    ORDER BY k.id
                    LIMIT $4"
                );
                let query = query_as(sql).bind(workspace).bind(api).bind(listing.from);
                query.bind(listing.limit).fetch_all(self).await?
            }
            Some(identity) => {
                let sql = keys_where!(
                    "k.workspace_id = $1 AND k.api_id = $2 AND k.id >= $3 AND k.identity_id = $4
                    ORDER BY k.id
                    LIMIT $5"
                );
                let query = query_as(sql).bind(workspace).bind(api).bind(listing.from);
                query.bind(identity).bind(listing.limit).fetch_all(self).await?
            }
        };
        rows.into_iter().map(StoredKey::try_from).collect()
    }

    async fn key_by_hash(&mut self, hash: &str) -> Result<Option<StoredKey>> {
        query_as::<_, KeyRow>(keys_where!("k.hash = $1"))
            .bind(hash)
            .fetch_optional(self)
            .await?
            .map(StoredKey::try_from)
            .transpose()
    }

    async fn purses_to_settle(
        &mut self,
        idle_ms: i64,
        replica: Option<&str>,
    ) -> Result<Vec<(KeyId, i64)>> {
        let sql = concat!(
            "SELECT key_id, epoch
            FROM purses
            WHERE withheld_at IS NULL AND (asked_by = $1 OR asked_at < ",
            now_ms!(),
            " - $2)
            ORDER BY asked_at
            LIMIT 1000"
        );
        Ok(query_as(sql).bind(replica.unwrap_or_default()).bind(idle_ms).fetch_all(self).await?)
    }

    async fn withheld(&mut self, key: Option<&KeyId>) -> Result<Vec<Withheld>> {
        let sql = withheld!("p.key_id = COALESCE($1, p.key_id)");
        Ok(query_as(sql).bind(key).fetch_all(self).await?)
    }

    async fn purses_of(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, i64)>> {
        let sql = concat!(
            "SELECT key_id, epoch FROM purses WHERE key_id IN (SELECT item FROM ",
            texts!("$1"),
            ")"
        );
        Ok(query_as(sql).bind(serde_json::json!(keys).to_string()).fetch_all(self).await?)
    }

    async fn purses_to_account(&mut self, replica: &str, max: i64) -> Result<Vec<(KeyId, i64)>> {
        let sql = "
            SELECT p.key_id, p.epoch
            FROM purses p
            WHERE p.withheld_at IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM purse_accounts a
                WHERE a.key_id = p.key_id AND a.epoch = p.epoch AND a.replica_id = $1)
            ORDER BY p.withheld_at
            LIMIT $2";
        Ok(query_as(sql).bind(replica).bind(max).fetch_all(self).await?)
    }

    async fn purses_proven(&mut self, silent_ms: i64) -> Result<Vec<Withheld>> {
        let sql = withheld!(
            "NOT EXISTS (
                SELECT 1 FROM replicas r
                WHERE r.seen_at >= p.opened_at - $1 AND NOT EXISTS (
                    SELECT 1 FROM purse_accounts a
                    WHERE a.key_id = p.key_id AND a.epoch = p.epoch AND a.replica_id = r.id))"
        );
        Ok(query_as(sql).bind(silent_ms).fetch_all(self).await?)
    }

    async fn accounts(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, Account)>> {
        let sql = concat!(
            "SELECT k.id, k.credits, k.credits_version, k.refill_amount, k.refill_day, k.refilled, ",
            now_ms!(),
            " AS now, (SELECT ",
            array!(object!(
                "'epoch', p.epoch, 'life', p.life, 'granted', p.granted, 'spent', p.spent,
                'opened_at', p.opened_at, 'asked_at', p.asked_at, 'asked_by', p.asked_by"
            )),
            " FROM purses p WHERE p.key_id = k.id AND p.withheld_at IS NULL) AS purses
            FROM keys k
            WHERE k.credits IS NOT NULL AND k.id IN (SELECT item FROM ",
            texts!("$1"),
            ")"
        );
        let rows: Vec<KeyAccountRow> =
            query_as(sql).bind(serde_json::json!(keys).to_string()).fetch_all(self).await?;
        rows.into_iter().filter_map(|row| row.into_account().transpose()).collect()
    }

    async fn account(&mut self, key: &KeyId) -> Result<Option<Account>> {
        let sql = concat!(account!(), " WHERE id = $1 AND deleted_at IS NULL");
        let row: Option<AccountRow> = query_as(sql).bind(key).fetch_optional(&mut *self).await?;
        let Some((credits, now)) = row.and_then(AccountRow::into_credits) else { return Ok(None) };
        let purses = query_as(purses!()).bind(key).fetch_all(self).await?;
        Ok(Some(Account { credits, purses, now }))
    }

    async fn audit_entries(
        &mut self,
        workspace: &WorkspaceId,
        wanted: &WantedEntries,
    ) -> Result<Vec<StoredEntry>> {
        let sql = concat!(
            "SELECT a.id, a.at, a.event, a.actor_type, a.actor_id, a.actor_name, a.remote_address,
                a.user_agent, a.targets, a.correlation_id
            FROM audit a
            WHERE a.workspace_id = $1
                AND ($2 = '' OR a.event = $2)
                AND ($3 = '' OR a.actor_id = $3)
                AND ($4 = '' OR EXISTS (SELECT 1 FROM ",
            items!("a.targets"),
            " WHERE item ->> 'id' = $4 OR item ->> 'name' = $4))
                AND ($5 = '' OR EXISTS (
                    SELECT 1 FROM audit b
                    WHERE b.id = $5 AND (a.at < b.at OR (a.at = b.at AND a.id < b.id))))
            ORDER BY a.at DESC, a.id DESC
            LIMIT $6"
        );
        let text = |wanted: &Option<String>| wanted.clone().unwrap_or_default();
        Ok(query_as(sql)
            .bind(workspace)
            .bind(text(&wanted.event))
            .bind(text(&wanted.actor))
            .bind(text(&wanted.about))
            .bind(text(&wanted.before))
            .bind(wanted.limit)
            .fetch_all(self)
            .await?)
    }

    async fn kept_reply(
        &mut self,
        root_key: &KeyId,
        name: &str,
    ) -> Result<Option<(String, String)>> {
        let sql = "SELECT request, sealed FROM kept_replies WHERE root_key_id = $1 AND name = $2";
        Ok(query_as(sql).bind(root_key).bind(name).fetch_optional(self).await?)
    }

    async fn now(&mut self) -> Result<Timestamp> {
        Ok(query_scalar(concat!("SELECT ", now_ms!())).fetch_one(self).await?)
    }

    async fn changes_after(&mut self, seq: i64) -> Result<Vec<Change>> {
        let sql = concat!(
            "SELECT seq, at, subject, ",
            now_ms!(),
            " AS now FROM changes WHERE seq > $1 ORDER BY seq LIMIT 10000"
        );
        Ok(query_as(sql).bind(seq).fetch_all(self).await?)
    }

    async fn changes_range(&mut self) -> Result<(i64, i64)> {
        let sql = "SELECT COALESCE(MIN(seq), 0), COALESCE(MAX(seq), 0) FROM changes";
        Ok(query_as(sql).fetch_one(self).await?)
    }
}
