//! Implements reads and writes of credit accounts, of leases, and of the replicas that may have spent from leases.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::{CreditAccount, Credits, Lease, Refill, RefillInterval};
use serde_json::json;
use sqlx::{query, query_as, query_scalar};

use super::withheld::to_spend_items;
use super::{Connection, account_rows};
use crate::rows::{AccountRow, KeyAccountRow, KeyCreditsRow, KeyLeaseRow};
use crate::{CreditReads, CreditWrites};

/// Selects the leases of a key.
macro_rules! leases_of_key {
    () => {
        "SELECT epoch, life, granted, spent, opened_at, asked_at, asked_by, withheld_at, closed,
            region
        FROM purses
        WHERE key_id = $1
        ORDER BY epoch"
    };
}

/// Selects the credit account of a key, with the time of the database's clock.
macro_rules! account {
    () => {
        concat!(
            "SELECT credits, credits_version, refill_amount, refill_day, refilled, ",
            now_ms!(),
            " AS now FROM keys"
        )
    };
}

/// Selects the credits of keys, none for deleted ones. They are not excluded by a condition: while the planner has no
/// statistics, it would expect so few others that it reads all of them in the index of those.
macro_rules! credits_of_keys {
    () => {
        concat!(
            "SELECT id, CASE WHEN deleted_at IS NULL THEN credits END AS credits, credits_version,
                refill_amount, refill_day, refilled, ",
            now_ms!(),
            " AS now FROM keys"
        )
    };
}

/// Returns the day of a monthly refill.
fn refill_day(refill: &Refill) -> Option<i64> {
    match refill.interval {
        RefillInterval::Daily => None,
        RefillInterval::Monthly { day } => Some(i64::from(day)),
    }
}

#[async_trait]
impl CreditReads for Connection {
    async fn list_idle_leases(
        &mut self,
        idle_ms: i64,
        replica: Option<&str>,
        regions: Option<&[String]>,
    ) -> Result<Vec<(KeyId, i64)>> {
        let sql = concat!(
            "SELECT key_id, epoch
            FROM purses
            WHERE withheld_at IS NULL AND (asked_by = $1 OR asked_at < ",
            now_ms!(),
            " - $2) AND ($4 OR region ",
            is_one_of!("$3"),
            ")
            ORDER BY asked_at
            LIMIT 1000"
        );
        let query = query_as(sql).bind(replica.unwrap_or_default()).bind(idle_ms);
        let query = query.bind(json!(regions.unwrap_or_default()).to_string());
        Ok(query.bind(regions.is_none()).fetch_all(self).await?)
    }

    async fn list_leases_of_keys(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, i64)>> {
        let sql = concat!("SELECT key_id, epoch FROM purses WHERE key_id ", is_one_of!("$1"));
        Ok(query_as(sql).bind(json!(keys).to_string()).fetch_all(self).await?)
    }

    async fn list_accounts(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, CreditAccount)>> {
        let sql = concat!(
            "SELECT k.id, k.credits, k.credits_version, k.refill_amount, k.refill_day, k.refilled, ",
            now_ms!(),
            " AS now, (SELECT ",
            array!(object!(
                "'epoch', p.epoch, 'life', p.life, 'granted', p.granted, 'spent', p.spent,
                'opened_at', p.opened_at, 'asked_at', p.asked_at, 'asked_by', p.asked_by,
                'withheld_at', p.withheld_at,
                'closed', CASE WHEN p.closed THEN 1 ELSE 0 END, 'region', p.region"
            )),
            " FROM purses p WHERE p.key_id = k.id) AS purses
            FROM keys k
            WHERE k.credits IS NOT NULL AND k.id ",
            is_one_of!("$1")
        );
        let rows: Vec<KeyAccountRow> =
            query_as(sql).bind(json!(keys).to_string()).fetch_all(self).await?;
        rows.into_iter().filter_map(|row| row.into_account().transpose()).collect()
    }

    async fn find_account(&mut self, key: &KeyId) -> Result<Option<CreditAccount>> {
        let sql = concat!(account!(), " WHERE id = $1 AND deleted_at IS NULL");
        let row: Option<AccountRow> = query_as(sql).bind(key).fetch_optional(&mut *self).await?;
        let Some((credits, now)) = row.and_then(AccountRow::into_credits) else { return Ok(None) };
        let leases = query_as(leases_of_key!()).bind(key).fetch_all(self).await?;
        Ok(Some(CreditAccount { credits, leases, database_time: now }))
    }

    async fn list_leases(&mut self, key: &KeyId) -> Result<Vec<Lease>> {
        Ok(query_as(leases_of_key!()).bind(key).fetch_all(self).await?)
    }

    async fn list_replicas(&mut self, max: i64) -> Result<Vec<(String, i64)>> {
        let sql = concat!(
            "SELECT id, ",
            now_ms!(),
            " - seen_at FROM replicas ORDER BY seen_at DESC, id LIMIT $1"
        );
        Ok(query_as(sql).bind(max).fetch_all(self).await?)
    }
}

async fn load_locked_account(
    connection: &mut Connection,
    key: &KeyId,
    sql: &'static str,
) -> Result<Option<CreditAccount>> {
    let row: Option<AccountRow> = query_as(sql).bind(key).fetch_optional(&mut *connection).await?;
    let Some((credits, now)) = row.and_then(AccountRow::into_credits) else { return Ok(None) };
    // Read after the lock, so that writes of its previous holder are visible.
    let leases = query_as(leases_of_key!()).bind(key).fetch_all(connection).await?;
    Ok(Some(CreditAccount { credits, leases, database_time: now }))
}

#[async_trait]
impl CreditWrites for Connection {
    async fn lock_account(&mut self, key: &KeyId) -> Result<Option<CreditAccount>> {
        load_locked_account(
            self,
            key,
            locked!(concat!(account!(), " WHERE id = $1 AND deleted_at IS NULL")),
        )
        .await
    }

    async fn lock_free_accounts(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, CreditAccount)>> {
        let sql = locked_skipping_locked!(concat!(
            credits_of_keys!(),
            " WHERE id ",
            is_one_of!("$1"),
            " ORDER BY id"
        ));
        let keys = json!(keys).to_string();
        let rows: Vec<KeyCreditsRow> = query_as(sql).bind(&keys).fetch_all(&mut *self).await?;
        // Read after the lock, so that writes of its previous holder are visible.
        let sql = concat!(
            "SELECT key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by, withheld_at,
                closed, region
            FROM purses
            WHERE key_id ",
            is_one_of!("$1"),
            " ORDER BY key_id, epoch"
        );
        // Planned each time: a plan from when there were few leases would read all of them.
        let query = query_as(sql).bind(&keys).persistent(false);
        let mut leases_by_key = KeyLeaseRow::group_by_key(query.fetch_all(self).await?);
        let accounts = rows.into_iter().filter_map(KeyCreditsRow::into_credits);
        let accounts = accounts.map(|(key, credits, database_time)| {
            let leases = leases_by_key.remove(&key).unwrap_or_default();
            (key, CreditAccount { credits, leases, database_time })
        });
        Ok(accounts.collect())
    }

    async fn lock_account_with_deleted(&mut self, key: &KeyId) -> Result<Option<CreditAccount>> {
        load_locked_account(self, key, locked!(concat!(account!(), " WHERE id = $1"))).await
    }

    async fn lock_credits(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, Credits, Timestamp)>> {
        let sql =
            locked!(concat!(credits_of_keys!(), " WHERE id ", is_one_of!("$1"), " ORDER BY id"));
        let rows: Vec<KeyCreditsRow> =
            query_as(sql).bind(json!(keys).to_string()).fetch_all(self).await?;
        Ok(rows.into_iter().filter_map(KeyCreditsRow::into_credits).collect())
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
            .bind(refill.as_ref().and_then(refill_day))
            .bind(credits.map_or(0, |credits| credits.refilled_period))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn set_refill(&mut self, key: &KeyId, refill: &Refill) -> Result<()> {
        let sql = "UPDATE keys SET refill_amount = $2, refill_day = $3 WHERE id = $1";
        query(sql).bind(key).bind(refill.amount).bind(refill_day(refill)).execute(self).await?;
        Ok(())
    }

    async fn update_balance(&mut self, key: &KeyId, credits: &Credits) -> Result<()> {
        let sql = "UPDATE keys SET credits = $2, credits_version = $3, refilled = $4 WHERE id = $1";
        query(sql)
            .bind(key)
            .bind(credits.balance)
            .bind(credits.last_lease_number)
            .bind(credits.refilled_period)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn update_balances(&mut self, credits: &[(KeyId, Credits)]) -> Result<()> {
        let sql = concat!(
            "UPDATE keys
            SET credits = items.balance, credits_version = items.version, refilled = items.refilled
            FROM ",
            balance_items!(),
            " WHERE id = items.key_id"
        );
        account_rows::bind_balances(query(sql), credits).execute(self).await?;
        Ok(())
    }

    async fn upsert_leases(&mut self, leases: &[(KeyId, Lease)]) -> Result<()> {
        let sql = concat!(
            "INSERT INTO purses
                (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by, withheld_at,
                closed, region, number)
            SELECT key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by, withheld_at,
                closed, region, ",
            next_number!(),
            " FROM ",
            lease_items!(),
            " WHERE TRUE
            ON CONFLICT (key_id, epoch) DO UPDATE SET granted = excluded.granted,
                spent = CASE WHEN purses.spent > excluded.spent
                    THEN purses.spent ELSE excluded.spent END, asked_at = excluded.asked_at,
                asked_by = excluded.asked_by, withheld_at = excluded.withheld_at,
                closed = excluded.closed"
        );
        account_rows::bind_leases(query(sql), leases).execute(self).await?;
        Ok(())
    }

    async fn delete_lease(&mut self, key: &KeyId, lease_number: i64) -> Result<()> {
        let sql = "DELETE FROM purses WHERE key_id = $1 AND epoch = $2";
        query(sql).bind(key).bind(lease_number).execute(self).await?;
        Ok(())
    }

    async fn forfeit_leases(&mut self, key: &KeyId) -> Result<()> {
        let sql = "DELETE FROM purses WHERE key_id = $1 AND closed";
        query(sql).bind(key).execute(&mut *self).await?;
        let sql = concat!(
            "UPDATE purses SET granted = spent, withheld_at = COALESCE(withheld_at, ",
            now_ms!(),
            ") WHERE key_id = $1"
        );
        query(sql).bind(key).execute(self).await?;
        Ok(())
    }

    async fn touch_leases(&mut self, spent: &[(KeyId, i64, i64)]) -> Result<()> {
        let sql = concat!(
            "UPDATE purses SET asked_at = ",
            now_ms!(),
            ", spent = CASE WHEN spent < CAST(item ->> 'spent' AS BIGINT)
                THEN CAST(item ->> 'spent' AS BIGINT) ELSE spent END
            FROM ",
            items!("$1"),
            " WHERE key_id = item ->> 'key' AND epoch = CAST(item ->> 'epoch' AS BIGINT)
                AND withheld_at IS NULL AND key_id ",
            is_in_items!("$1", "key")
        );
        query(sql).bind(to_spend_items(spent)).execute(self).await?;
        Ok(())
    }

    async fn register_replica(
        &mut self,
        id: &str,
        region: &str,
        heartbeat: i64,
        within_ms: i64,
    ) -> Result<Vec<(String, String)>> {
        let sql = concat!(
            "INSERT INTO replicas (id, started_at, seen_at, feed, heartbeat, region) VALUES ($1, ",
            now_ms!(),
            ", ",
            now_ms!(),
            ", '', $2, $3) ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at,
                heartbeat = excluded.heartbeat, silent_seen_at = NULL, gone = NULL"
        );
        query(sql).bind(id).bind(heartbeat).bind(region).execute(&mut *self).await?;
        let sql = concat!(
            "SELECT id, region FROM replicas WHERE seen_at > ",
            now_ms!(),
            " - $1 ORDER BY id"
        );
        Ok(query_as(sql).bind(within_ms).fetch_all(self).await?)
    }

    async fn lock_registration(&mut self, id: &str) -> Result<bool> {
        let sql = locked_for_key_share!(concat!(
            "SELECT id FROM replicas WHERE id = $1 AND ",
            is_registered!()
        ));
        Ok(query_scalar::<_, String>(sql).bind(id).fetch_optional(self).await?.is_some())
    }

    async fn end_silent_registrations(&mut self, silent_ms: i64) -> Result<()> {
        // A replica whose registration is locked is in use, and not silent.
        let sql = concat!(
            "UPDATE replicas SET silent_seen_at = seen_at, gone = NULL WHERE id IN (",
            locked_skipping_locked!(concat!(
                "SELECT id FROM replicas WHERE ",
                is_registered!(),
                " AND seen_at < ",
                now_ms!(),
                " - $1"
            )),
            ")"
        );
        query(sql).bind(silent_ms).execute(self).await?;
        Ok(())
    }

    async fn count_out_replicas(&mut self) -> Result<()> {
        let sql = concat!(
            "UPDATE replicas SET gone = ",
            next_number!(),
            " WHERE id IN (",
            locked_skipping_locked!(concat!(
                "SELECT id FROM replicas WHERE gone IS NULL AND NOT ",
                is_registered!()
            )),
            ")"
        );
        query(sql).execute(self).await?;
        Ok(())
    }

    async fn prune_replicas(&mut self) -> Result<()> {
        let sql = concat!(
            "DELETE FROM replicas
            WHERE gone IS NOT NULL AND NOT ",
            is_registered!(),
            " AND NOT EXISTS (SELECT 1 FROM purses WHERE number < replicas.gone) AND seen_at < ",
            now_ms!(),
            " - 86400000"
        );
        query(sql).execute(self).await?;
        Ok(())
    }

    async fn delete_replica(&mut self, id: &str) -> Result<()> {
        query("DELETE FROM replicas WHERE id = $1").bind(id).execute(self).await?;
        Ok(())
    }
}
