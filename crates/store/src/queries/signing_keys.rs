//! Implements reads and writes of signing keys.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::vault::SealedSigningKey;
use sqlx::{query, query_as};

use super::Connection;
use crate::{SigningKeyReads, SigningKeySlot, SigningKeyWrites, StoredSigningKey};

#[async_trait]
impl SigningKeyReads for Connection {
    async fn list_signing_keys(&mut self) -> Result<Vec<StoredSigningKey>> {
        let sql = "
            SELECT id, public_key, master_id, sealed, created_at, activated_at, retired_at
            FROM signing_keys
            ORDER BY created_at, id";
        Ok(query_as(sql).fetch_all(self).await?)
    }
}

#[async_trait]
impl SigningKeyWrites for Connection {
    async fn lock_signing_keys(&mut self) -> Result<Vec<StoredSigningKey>> {
        query(locked!("SELECT id FROM signing_keys ORDER BY id")).fetch_all(&mut *self).await?;
        // Read after the lock, so that writes of its previous holder are visible.
        self.list_signing_keys().await
    }

    async fn insert_signing_key(
        &mut self,
        key: &SealedSigningKey,
        slot: SigningKeySlot,
        now: Timestamp,
    ) -> Result<()> {
        let (slot, activated_at) = match slot {
            SigningKeySlot::Current => ("current", Some(now)),
            SigningKeySlot::Next => ("next", None),
        };
        let sql = "
            INSERT INTO signing_keys
                (id, slot, public_key, master_id, sealed, created_at, activated_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7)
            ON CONFLICT (slot) DO NOTHING";
        query(sql)
            .bind(&key.id)
            .bind(slot)
            .bind(&key.public_key)
            .bind(&key.master_id)
            .bind(&key.sealed)
            .bind(now)
            .bind(activated_at)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn promote_next_signing_key(&mut self, now: Timestamp) -> Result<()> {
        let retire = "UPDATE signing_keys SET slot = NULL, retired_at = $1 WHERE slot = 'current'";
        query(retire).bind(now).execute(&mut *self).await?;
        let promote =
            "UPDATE signing_keys SET slot = 'current', activated_at = $1 WHERE slot = 'next'";
        query(promote).bind(now).execute(self).await?;
        Ok(())
    }

    async fn delete_signing_keys(&mut self, retired_before: Timestamp) -> Result<()> {
        let sql = "DELETE FROM signing_keys WHERE retired_at < $1";
        query(sql).bind(retired_before).execute(self).await?;
        Ok(())
    }

    async fn reseal_signing_key(&mut self, key: &SealedSigningKey) -> Result<()> {
        let sql = "UPDATE signing_keys SET master_id = $2, sealed = $3 WHERE id = $1";
        query(sql).bind(&key.id).bind(&key.master_id).bind(&key.sealed).execute(self).await?;
        Ok(())
    }
}
