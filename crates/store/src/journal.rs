//! Stores debits of an embedded server in a journal.
//!
//! A debit is durable once a row of the journal is. One row stores all keys that are debited together, so its cost
//! does not depend on the number of keys, whereas each balance is on a page of the file of its own. The journal is
//! folded into the balances from time to time, and always at the beginning of any other write transaction. So no
//! transaction that reads or writes a balance, in this process or another one, needs to know of the journal.
//!
//! The transactions of a [`Writer`](super::writer::Writer) are numbered. The code that debits caches balances; they
//! are those of the database as long as the number of its next transaction follows that of its last one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foundation::error::{Error, Result};
use foundation::id::KeyId;
use serde_json::json;
use sqlx::SqliteConnection;

use super::tx::EngineTransaction;
use super::{Store, Tx};

/// Subtracts the debits in the journal from the balances, and empties the journal. The deletion has a condition
/// because, without one, it would write a page even if there is nothing to delete.
const FOLD_SQL: &str = "
    UPDATE keys SET credits = credits - spent.units
    FROM (
        SELECT entries.key AS id, SUM(entries.value) AS units
        FROM debits, json_each(debits.units) AS entries
        GROUP BY entries.key
    ) AS spent
    WHERE keys.id = spent.id;
    DELETE FROM debits WHERE TRUE";

/// Tracks, by transaction numbers, whether the journal may contain debits.
#[derive(Debug, Clone)]
pub struct Journal(Arc<JournalNumbers>);

#[derive(Debug)]
struct JournalNumbers {
    /// The last transaction that has added to the journal, or may have.
    last_append: AtomicU64,
    /// The last transaction whose debits are known to be in the balances.
    last_fold: AtomicU64,
}

impl Journal {
    /// Creates the state for a file that another process may have written to.
    pub fn new() -> Self {
        let (appended, folded) = (AtomicU64::new(1), AtomicU64::new(0));
        Self(Arc::new(JournalNumbers { last_append: appended, last_fold: folded }))
    }

    fn is_pending(&self) -> bool {
        self.0.last_append.load(Ordering::Acquire) > self.0.last_fold.load(Ordering::Acquire)
    }

    /// Records that a transaction, or another process before the next one, may have added to the journal.
    pub(super) fn record_append(&self, number: u64) {
        self.0.last_append.fetch_max(number, Ordering::AcqRel);
    }

    /// Records that a transaction that has folded the journal is committed.
    pub(super) fn record_fold_commit(&self, number: u64) {
        // The transaction may have added to the journal after it folded it.
        self.0.last_fold.fetch_max(number - 1, Ordering::AcqRel);
    }
}

async fn fold(connection: &mut SqliteConnection) -> Result<()> {
    sqlx::raw_sql(FOLD_SQL).execute(connection).await?;
    Ok(())
}

impl Store {
    /// Begins a transaction of an embedded server that does nothing but debit, so the journal is not folded first.
    pub async fn begin_debits(&self) -> Result<Tx> {
        Ok(Tx::new(EngineTransaction::Sqlite(self.writer()?.begin().await?)))
    }

    /// Adds the credits that keys have spent to the journal as the transaction `number`, and waits until they are durable.
    /// Returns `false`, and adds nothing, if `number` is not that of the next transaction: something else was written
    /// after the transaction before it, or may have been.
    pub async fn append_debits(&self, number: u64, units: &HashMap<&KeyId, i64>) -> Result<bool> {
        self.writer()?.append_to_journal(number, json!(units).to_string()).await
    }

    /// Folds the journal into the balances, so that later reads see all debits so far.
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
    /// Returns the number of a transaction of an embedded server. It is one more than that of the previous
    /// transaction, unless another process has written in between or the connection is a new one.
    pub fn transaction_number(&self) -> Option<u64> {
        match &self.inner {
            EngineTransaction::Sqlite(tx) => Some(tx.number()),
            EngineTransaction::Postgres(_) => None,
        }
    }

    /// Folds the journal into the balances, unless it is known to be empty.
    pub async fn fold_debits(&mut self) -> Result<()> {
        if let EngineTransaction::Sqlite(tx) = &mut self.inner
            && tx.journal().is_pending()
        {
            fold(tx).await?;
            tx.record_fold();
        }
        Ok(())
    }

    /// Returns the debits of these keys in the journal.
    pub async fn load_debits(&mut self, keys: &[KeyId]) -> Result<HashMap<KeyId, i64>> {
        let EngineTransaction::Sqlite(tx) = &mut self.inner else { return Ok(HashMap::new()) };
        let sql =
            "SELECT entries.key, SUM(entries.value) FROM debits, json_each(debits.units) AS entries
            WHERE entries.key IN (SELECT value FROM json_each($1)) GROUP BY entries.key";
        let rows: Vec<(KeyId, i64)> =
            sqlx::query_as(sql).bind(json!(keys).to_string()).fetch_all(&mut **tx).await?;
        Ok(rows.into_iter().collect())
    }

    /// Adds the credits that keys have spent to the journal.
    pub async fn append_debits(&mut self, units: &HashMap<&KeyId, i64>) -> Result<()> {
        let EngineTransaction::Sqlite(tx) = &mut self.inner else {
            return Err(Error::Internal("Postgres has no journal of debits".into()));
        };
        tx.journal().record_append(tx.number());
        let units = json!(units).to_string();
        sqlx::query("INSERT INTO debits (units) VALUES ($1)")
            .bind(units)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }
}
