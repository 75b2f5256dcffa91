//! Locks in Postgres, which block the statements of replicas.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use crate::servers::block_on;

/// A transaction that holds a lock until it is dropped.
pub struct Lock {
    release: Option<Sender<()>>,
    holder: Option<JoinHandle<()>>,
}

impl Lock {
    /// Locks the table of keys.
    pub fn of_keys(url: String) -> Self {
        Self::acquire(url, "LOCK TABLE keys IN ACCESS EXCLUSIVE MODE".to_owned())
    }

    /// Locks the account of a key.
    pub fn of_account(url: String, key_id: &str) -> Self {
        Self::acquire(url, format!("SELECT FROM keys WHERE id = '{key_id}' FOR UPDATE"))
    }

    fn acquire(url: String, statement: String) -> Self {
        let (release, released) = channel::<()>();
        let (acquired, is_acquired) = channel();
        let holder = std::thread::spawn(move || {
            block_on(async {
                let mut connection = PgConnection::connect(&url).await.expect("Postgres");
                let lock = AssertSqlSafe(format!("BEGIN; {statement}"));
                connection.execute(lock).await.expect("the lock");
                let _ = acquired.send(());
                let _ = released.recv();
                connection.execute("ROLLBACK").await.expect("the lock is released");
            });
        });
        is_acquired.recv().expect("the lock is taken");
        Self { release: Some(release), holder: Some(holder) }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.release.take();
        if let Some(holder) = self.holder.take() {
            let _ = holder.join();
        }
    }
}
