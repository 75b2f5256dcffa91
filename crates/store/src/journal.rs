//! The journal of debits of an embedded server.
//!
//! A debit is durable once a row of the journal is: one row for all keys that were debited together. So it costs the same
//! whatever number of keys it concerns, where each balance has a page of the file of its own. The journal is folded into
//! the balances now and then, and always by another transaction that writes, before it does anything: so none that reads
//! or writes a balance, in this process or another one, needs to know of it.
//!
//! The transactions of a [`Writer`](super::writer::Writer) are numbered. Who debits remembers balances, and they are those
//! of the database as long as the number of its next transaction follows that of its last one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foundation::error::{Error, Result};
use foundation::id::KeyId;
use serde_json::json;
use sqlx::SqliteConnection;

use super::tx::Inner;
use super::{Store, Tx};

/// Takes what the journal holds off the balances, and empties it. Without its condition, the deletion would write a page
/// where there is nothing to delete.
const FOLD: &str = "
    UPDATE keys SET credits = credits - spent.units
    FROM (
        SELECT entries.key AS id, SUM(entries.value) AS units
        FROM debits, json_each(debits.units) AS entries
        GROUP BY entries.key
    ) AS spent
    WHERE keys.id = spent.id;
    DELETE FROM debits WHERE TRUE";

/// Tells by the numbers of transactions whether the journal may hold something.
#[derive(Debug, Clone)]
pub struct Journal(Arc<Numbers>);

#[derive(Debug)]
struct Numbers {
    /// The last transaction that has added to the journal, or may have.
    appended: AtomicU64,
    /// The last transaction whose debits are certain to be in the balances.
    folded: AtomicU64,
}

impl Journal {
    /// The journal of a file that another process may have written to.
    pub fn new() -> Self {
        let (appended, folded) = (AtomicU64::new(1), AtomicU64::new(0));
        Self(Arc::new(Numbers { appended, folded }))
    }

    fn is_pending(&self) -> bool {
        self.0.appended.load(Ordering::Acquire) > self.0.folded.load(Ordering::Acquire)
    }

    /// Notes that a transaction, or somebody else before the next one, may have added to the journal.
    pub(super) fn appended(&self, number: u64) {
        self.0.appended.fetch_max(number, Ordering::AcqRel);
    }

    /// Notes that this transaction, which has folded the journal, is committed.
    pub(super) fn committed(&self, number: u64) {
        // It may have added to the journal afterwards.
        self.0.folded.fetch_max(number - 1, Ordering::AcqRel);
    }
}

async fn fold(connection: &mut SqliteConnection) -> Result<()> {
    sqlx::raw_sql(FOLD).execute(connection).await?;
    Ok(())
}

impl Store {
    /// Begins a transaction of an embedded server that debits, and nothing else.
    pub async fn begin_debits(&self) -> Result<Tx> {
        Ok(Tx::new(Inner::Sqlite(self.writer()?.begin().await?)))
    }

    /// Takes what the journal holds off the balances, so that who reads them next sees all that was spent until now.
    pub async fn fold_debits(&self) -> Result<()> {
        match self {
            Self::Sqlite { writer: Some(writer), .. } if writer.journal().is_pending() => {
                self.begin().await?.commit().await.map(drop)
            }
            Self::Sqlite { .. } | Self::Postgres { .. } => Ok(()),
        }
    }
}

impl Tx {
    /// The number of a transaction of an embedded server: one more than that of the one before, unless somebody else has
    /// written in between, or the connection is a new one.
    pub fn number(&self) -> Option<u64> {
        match &self.inner {
            Inner::Sqlite(tx) => Some(tx.number()),
            Inner::Postgres(_) => None,
        }
    }

    /// Takes what the journal holds off the balances, unless it is known to be empty.
    pub async fn fold_debits(&mut self) -> Result<()> {
        if let Inner::Sqlite(tx) = &mut self.inner
            && tx.journal().is_pending()
        {
            fold(tx).await?;
            tx.set_folded();
        }
        Ok(())
    }

    /// What the journal holds of these keys.
    pub async fn debits_of(&mut self, keys: &[KeyId]) -> Result<HashMap<KeyId, i64>> {
        let Inner::Sqlite(tx) = &mut self.inner else { return Ok(HashMap::new()) };
        let sql =
            "SELECT entries.key, SUM(entries.value) FROM debits, json_each(debits.units) AS entries
            WHERE entries.key IN (SELECT value FROM json_each($1)) GROUP BY entries.key";
        let rows: Vec<(KeyId, i64)> =
            sqlx::query_as(sql).bind(json!(keys).to_string()).fetch_all(&mut **tx).await?;
        Ok(rows.into_iter().collect())
    }

    /// Adds to the journal what keys have spent.
    pub async fn append_debits(&mut self, units: &HashMap<&KeyId, i64>) -> Result<()> {
        let Inner::Sqlite(tx) = &mut self.inner else {
            return Err(Error::Internal("Postgres has no journal of debits".into()));
        };
        tx.journal().appended(tx.number());
        let units = json!(units).to_string();
        sqlx::query("INSERT INTO debits (units) VALUES ($1)")
            .bind(units)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }
}
