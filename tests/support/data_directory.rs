//! Provides a data directory for each embedded server, copied from one whose databases are migrated once.

use std::fs;

use analytics::EVENTS_FILE;
use domain::context::DATABASE_FILE;
use store::{EventStore, Store};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// Like every temporary file, it is deleted at the end of the test command.
static MIGRATED: OnceCell<TempDir> = OnceCell::const_new();

/// Creates a directory with migrated, empty databases.
pub async fn create() -> TempDir {
    let migrated = MIGRATED.get_or_init(migrate).await;
    let directory = tempfile::tempdir().expect("a directory");
    for file in [DATABASE_FILE, EVENTS_FILE] {
        fs::copy(migrated.path().join(file), directory.path().join(file)).expect("a copy");
    }
    directory
}

async fn migrate() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(&directory.path().join(DATABASE_FILE)).await.expect("a database");
    store.migrate().await.expect("the schema is migrated");
    store.close().await;
    let events = EventStore::open(&directory.path().join(EVENTS_FILE));
    events.migrate().await.expect("the schema of events is migrated");
    events.close().await;
    directory
}
