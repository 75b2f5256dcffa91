//! Credits: accounts, purses, and the replicas that may have spent from them.

use async_trait::async_trait;
use serde_json::json;
use sqlx::{query, query_as, query_scalar};

use super::Connection;
use crate::error::Result;
use crate::id::KeyId;
use crate::model::{Account, Credits, Purse, Refill, RefillInterval, Withheld};
use crate::store::rows::{AccountRow, KeyAccountRow};
use crate::store::{CreditReads, CreditWrites};

/// The purses of a key.
macro_rules! purses {
    () => {
        "SELECT epoch, life, granted, spent, opened_at, asked_at, asked_by, withheld_at
        FROM purses
        WHERE key_id = $1
        ORDER BY epoch"
    };
}

/// A key's account, and the database's own time.
macro_rules! account {
    () => {
        concat!(
            "SELECT credits, credits_version, refill_amount, refill_day, refilled, ",
            now_ms!(),
            " AS now FROM keys"
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

/// The day of a monthly refill.
fn day(refill: &Refill) -> Option<i64> {
    match refill.interval {
        RefillInterval::Daily => None,
        RefillInterval::Monthly { day } => Some(i64::from(day)),
    }
}

#[async_trait]
impl CreditReads for Connection {
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

    async fn purses_of(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, i64)>> {
        let sql = concat!(
            "SELECT key_id, epoch FROM purses WHERE key_id IN (SELECT item FROM ",
            texts!("$1"),
            ")"
        );
        Ok(query_as(sql).bind(json!(keys).to_string()).fetch_all(self).await?)
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

    async fn withheld(&mut self, key: Option<&KeyId>) -> Result<Vec<Withheld>> {
        let sql = withheld!("p.key_id = COALESCE($1, p.key_id)");
        Ok(query_as(sql).bind(key).fetch_all(self).await?)
    }

    async fn units_withheld(&mut self) -> Result<i64> {
        let sql = "
            SELECT CAST(COALESCE(SUM(granted - spent), 0) AS BIGINT)
            FROM purses
            WHERE withheld_at IS NOT NULL AND granted > spent";
        Ok(query_scalar(sql).fetch_one(self).await?)
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
            query_as(sql).bind(json!(keys).to_string()).fetch_all(self).await?;
        rows.into_iter().filter_map(|row| row.into_account().transpose()).collect()
    }

    async fn account(&mut self, key: &KeyId) -> Result<Option<Account>> {
        let sql = concat!(account!(), " WHERE id = $1 AND deleted_at IS NULL");
        let row: Option<AccountRow> = query_as(sql).bind(key).fetch_optional(&mut *self).await?;
        let Some((credits, now)) = row.and_then(AccountRow::into_credits) else { return Ok(None) };
        let purses = query_as(purses!()).bind(key).fetch_all(self).await?;
        Ok(Some(Account { credits, purses, now }))
    }

    async fn replicas(&mut self, max: i64) -> Result<Vec<(String, i64)>> {
        let sql = concat!(
            "SELECT id, ",
            now_ms!(),
            " - seen_at FROM replicas ORDER BY seen_at DESC, id LIMIT $1"
        );
        Ok(query_as(sql).bind(max).fetch_all(self).await?)
    }
}

#[async_trait]
impl CreditWrites for Connection {
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
        let sql = "
            UPDATE keys
            SET credits = $2, credits_version = credits_version + 1, refill_amount = $3,
                refill_day = $4, refilled = $5
            WHERE id = $1";
        query(sql)
            .bind(key)
            .bind(credits.map(|credits| credits.balance))
            .bind(refill.map(|refill| refill.amount))
            .bind(refill.as_ref().and_then(day))
            .bind(credits.map_or(0, |credits| credits.refilled))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn keep_refill(&mut self, key: &KeyId, refill: &Refill) -> Result<()> {
        let sql = "UPDATE keys SET refill_amount = $2, refill_day = $3 WHERE id = $1";
        query(sql).bind(key).bind(refill.amount).bind(day(refill)).execute(self).await?;
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
}
