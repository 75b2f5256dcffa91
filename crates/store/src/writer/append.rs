//! Appends rows to the journal of debits, each with one statement.

use foundation::error::Result;
use sqlx::Connection as _;
use sqlx::SqliteConnection;
use tokio::sync::oneshot;

use super::{WriterQueue, shared_commit_error};

/// A request to append a row to the journal as the transaction `number`.
pub struct AppendRequest {
    pub number: u64,
    pub units: String,
    /// Receives, when the row's turn has come, the receiver of the result. A caller that has left by then writes nothing.
    pub begun: oneshot::Sender<oneshot::Receiver<Result<bool>>>,
}

impl AppendRequest {
    /// Returns the sender of the result, unless the caller no longer waits.
    pub fn begin(self) -> Option<oneshot::Sender<Result<bool>>> {
        let (result, receiver) = oneshot::channel();
        self.begun.send(receiver).is_ok().then_some(result)
    }

    /// Appends the row if it is the transaction after the last one. Returns the connection, unless it failed.
    pub async fn run(
        mut self,
        mut connection: SqliteConnection,
        queue: &mut WriterQueue,
    ) -> Option<SqliteConnection> {
        let (number, units) = (self.number, std::mem::take(&mut self.units));
        let Some(result) = self.begin() else { return Some(connection) };
        let Some(version) = queue.data_version.filter(|_| number == queue.number + 1) else {
            let _ = result.send(Ok(false));
            return Some(connection);
        };
        queue.number = number;
        queue.journal.record_append(number);
        match append(&mut connection, &units, version).await {
            Ok(is_appended) => {
                let _ = result.send(Ok(is_appended));
                Some(connection)
            }
            Err(cause) => {
                let _ = result.send(Err(shared_commit_error(cause)));
                let _ = connection.close().await;
                None
            }
        }
    }
}

/// Appends a row to the journal if SQLite's `data_version` still is this one, and returns whether it is. The statement
/// holds the write lock before it reads the version.
async fn append(
    connection: &mut SqliteConnection,
    units: &str,
    data_version: i64,
) -> sqlx::Result<bool> {
    let sql = "INSERT INTO debits (units)
        SELECT $1 WHERE (SELECT data_version FROM pragma_data_version) = $2";
    let done = sqlx::query(sql).bind(units).bind(data_version).execute(connection).await?;
    Ok(done.rows_affected() == 1)
}
