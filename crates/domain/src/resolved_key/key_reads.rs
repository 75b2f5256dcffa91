//! Reads of keys that are not in the cache. Those that wait share a statement.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foundation::error::Result;
use foundation::secret::KeyHash;
use store::{StoredKey, with_timeout};

use crate::batches::{BatchQueue, BatchRequest, BatchRunner};
use crate::context::Context;

/// The maximum number of statements in progress while the database is near.
const STATEMENTS_MAX: usize = 4;
/// The maximum number while it is far away, where a statement mostly waits for the network.
const FAR_STATEMENTS_MAX: usize = 8;
/// How long a statement may take, with the wait for a connection.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);

type KeyRequest = BatchRequest<KeyHash, Option<StoredKey>>;
type KeyRunner = BatchRunner<KeyHash, Option<StoredKey>>;

/// Reads keys by hash.
#[derive(Clone)]
pub struct KeyReads {
    context: Arc<Context>,
    queue: BatchQueue<KeyHash, Option<StoredKey>>,
}

impl KeyReads {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, queue: BatchQueue::default() }
    }

    /// Returns the row of a key as it is in the database after this call, unless it or its API is deleted.
    pub async fn find(&self, hash: &KeyHash) -> Result<Option<StoredKey>> {
        let far = self.context.is_database_far();
        let statements_max = if far { FAR_STATEMENTS_MAX } else { STATEMENTS_MAX };
        // A task of its own: a caller that stops waiting must not end the reads of others.
        let run = |runner| drop(tokio::spawn(self.clone().run(runner)));
        self.queue.ask(*hash, statements_max, run).await
    }

    /// Reads batches until no caller waits.
    async fn run(self, mut runner: KeyRunner) {
        while let Some(batch) = runner.next_batch() {
            match self.context.read_again_if_lost(|| self.read(&batch)).await {
                Ok(found) => {
                    for request in batch {
                        // Not removed: two callers may ask for one key.
                        let key = found.get(&request.question.to_base64()).cloned();
                        request.reply(Ok(key));
                    }
                }
                Err(cause) => runner.reject(batch, cause),
            }
        }
    }

    /// Returns the keys of a batch by hash.
    async fn read(&self, batch: &[KeyRequest]) -> Result<HashMap<String, StoredKey>> {
        let hashes: Vec<_> = batch.iter().map(|request| request.question.to_base64()).collect();
        let read = async {
            let mut reader = self.context.store.read().await?;
            reader.list_keys_to_spend(&hashes, &self.context.replica_id).await
        };
        let keys = with_timeout(STATEMENT_TIMEOUT, read).await?;
        Ok(keys.into_iter().map(|stored| (stored.key.hash.clone(), stored)).collect())
    }
}
