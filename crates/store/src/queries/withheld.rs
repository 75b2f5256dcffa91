//! Implements reads and writes of withheld leases and of the reports of replicas about them.

use async_trait::async_trait;
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::WithheldCredits;
use serde_json::json;
use sqlx::{query, query_as, query_scalar};

use super::Connection;
use crate::{UnreportedLease, WithheldReads, WithheldWrites};

macro_rules! withheld {
    ($condition:expr) => {
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

/// Tests whether every replica that may know of a lease has reported it. A replica that was counted out knows of no
/// lease that was opened later.
macro_rules! is_proven {
    () => {
        concat!(
            "NOT EXISTS (
                SELECT 1 FROM replicas r
                WHERE (r.gone IS NULL OR r.gone > p.number OR ",
            is_registered!(),
            ") AND NOT EXISTS (
                    SELECT 1 FROM purse_accounts a
                    WHERE a.key_id = p.key_id AND a.epoch = p.epoch AND a.replica_id = r.id))"
        )
    };
}

/// Encodes the spend of leases as a list of items.
pub fn to_spend_items(spent: &[(KeyId, i64, i64)]) -> String {
    let item = |(key, epoch, spent): &(KeyId, i64, i64)| json!({ "key": key, "epoch": epoch, "spent": spent });
    json!(spent.iter().map(item).collect::<Vec<_>>()).to_string()
}

#[async_trait]
impl WithheldReads for Connection {
    async fn list_unreported_leases(
        &mut self,
        replica: &str,
        after: Option<&UnreportedLease>,
        max: i64,
    ) -> Result<Vec<UnreportedLease>> {
        let sql = "
            SELECT p.withheld_at AS since, p.key_id, p.epoch
            FROM purses p
            WHERE p.withheld_at IS NOT NULL AND p.withheld_at >= $2
                AND (p.withheld_at, p.key_id, p.epoch) > ($2, $3, $4)
                AND NOT EXISTS (
                    SELECT 1 FROM purse_accounts a
                    WHERE a.key_id = p.key_id AND a.epoch = p.epoch AND a.replica_id = $1)
            ORDER BY p.withheld_at, p.key_id, p.epoch
            LIMIT $5";
        Ok(query_as(sql)
            .bind(replica)
            .bind(after.map_or(0, |after| after.since.0))
            .bind(after.map_or("", |after| after.key_id.as_str()))
            .bind(after.map_or(0, |after| after.lease_number))
            .bind(max)
            .fetch_all(self)
            .await?)
    }

    async fn list_withheld_of_keys(
        &mut self,
        keys: &[KeyId],
        only_proven: bool,
    ) -> Result<Vec<WithheldCredits>> {
        let all = withheld!(concat!("p.key_id ", is_one_of!("$1")));
        let proven = withheld!(concat!("p.key_id ", is_one_of!("$1"), " AND ", is_proven!()));
        let sql = if only_proven { proven } else { all };
        Ok(query_as(sql).bind(json!(keys).to_string()).fetch_all(self).await?)
    }

    async fn list_withheld(&mut self, key: Option<&KeyId>) -> Result<Vec<WithheldCredits>> {
        let sql = withheld!("p.key_id = COALESCE($1, p.key_id)");
        Ok(query_as(sql).bind(key).fetch_all(self).await?)
    }

    async fn sum_withheld(&mut self) -> Result<i64> {
        let sql = "
            SELECT CAST(COALESCE(SUM(granted - spent), 0) AS BIGINT)
            FROM purses
            WHERE withheld_at IS NOT NULL AND granted > spent";
        Ok(query_scalar(sql).fetch_one(self).await?)
    }
}

#[async_trait]
impl WithheldWrites for Connection {
    async fn report_spends(&mut self, spent: &[(KeyId, i64, i64)]) -> Result<()> {
        // Locked in one order, so that two replicas that report the same leases do not deadlock.
        let sql = concat!(
            "UPDATE purses SET spent = reported.observed FROM (",
            locked_for_no_key_update!(concat!(
                "SELECT p.key_id, p.epoch, CAST(item ->> 'spent' AS BIGINT) AS observed FROM ",
                items!("$1"),
                " JOIN purses p ON p.key_id = item ->> 'key'
                    AND p.epoch = CAST(item ->> 'epoch' AS BIGINT)
                WHERE p.key_id ",
                is_in_items!("$1", "key"),
                " ORDER BY p.key_id, p.epoch"
            )),
            ") AS reported
            WHERE purses.key_id = reported.key_id AND purses.epoch = reported.epoch
                AND purses.spent < reported.observed"
        );
        query(sql).bind(to_spend_items(spent)).execute(self).await?;
        Ok(())
    }

    async fn report_final_spends(
        &mut self,
        replica: &str,
        spent: &[(KeyId, i64, i64)],
    ) -> Result<()> {
        let observed: Vec<_> = spent.iter().filter(|(_, _, spent)| *spent > 0).cloned().collect();
        if !observed.is_empty() {
            self.report_spends(&observed).await?;
        }
        let sql = concat!(
            "INSERT INTO purse_accounts (key_id, epoch, replica_id)
            SELECT p.key_id, p.epoch, $2 FROM ",
            items!("$1"),
            " JOIN purses p ON p.key_id = item ->> 'key'
                AND p.epoch = CAST(item ->> 'epoch' AS BIGINT)
            WHERE p.withheld_at IS NOT NULL AND p.key_id ",
            is_in_items!("$1", "key"),
            " ON CONFLICT (key_id, epoch, replica_id) DO NOTHING"
        );
        query(sql).bind(to_spend_items(spent)).bind(replica).execute(self).await?;
        Ok(())
    }

    async fn lock_accounts(&mut self, keys: &[KeyId]) -> Result<()> {
        let sql =
            locked!(concat!("SELECT id FROM keys WHERE id ", is_one_of!("$1"), " ORDER BY id"));
        query(sql).bind(json!(keys).to_string()).fetch_all(self).await?;
        Ok(())
    }

    async fn claim_accounts(&mut self, keys: &[KeyId]) -> Result<Vec<KeyId>> {
        let sql = locked_skipping_locked!(concat!(
            "SELECT id FROM keys WHERE id ",
            is_one_of!("$1"),
            " ORDER BY id"
        ));
        Ok(query_scalar(sql).bind(json!(keys).to_string()).fetch_all(self).await?)
    }

    async fn return_credits(&mut self, units: &[(KeyId, i64)]) -> Result<Vec<KeyId>> {
        let item = |(key, units): &(KeyId, i64)| json!({ "key": key, "units": units });
        let items: Vec<_> = units.iter().map(item).collect();
        let sql = concat!(
            "UPDATE keys
            SET credits = CASE
                    WHEN credits > 9223372036854775807 - CAST(item ->> 'units' AS BIGINT)
                    THEN 9223372036854775807 ELSE credits + CAST(item ->> 'units' AS BIGINT) END,
                credits_version = credits_version + 1
            FROM ",
            items!("$1"),
            " WHERE id = item ->> 'key' AND credits IS NOT NULL AND id ",
            is_in_items!("$1", "key"),
            " RETURNING CASE WHEN EXISTS (
                SELECT 1 FROM purses
                WHERE purses.key_id = keys.id AND withheld_at IS NULL AND NOT closed
            ) THEN id END"
        );
        let leased: Vec<Option<KeyId>> =
            query_scalar(sql).bind(json!(items).to_string()).fetch_all(self).await?;
        Ok(leased.into_iter().flatten().collect())
    }

    async fn delete_withheld(&mut self, leases: &[(KeyId, i64)]) -> Result<()> {
        let item = |(key, epoch): &(KeyId, i64)| json!({ "key": key, "epoch": epoch });
        let items: Vec<_> = leases.iter().map(item).collect();
        let sql = concat!(
            "DELETE FROM purses WHERE key_id ",
            is_in_items!("$1", "key"),
            " AND (key_id, epoch) IN (
                SELECT item ->> 'key', CAST(item ->> 'epoch' AS BIGINT) FROM ",
            items!("$1"),
            ")"
        );
        query(sql).bind(json!(items).to_string()).execute(self).await?;
        Ok(())
    }
}
