//! The replicas that serve, as an operator sees them.

use foundation::error::Result;
use store::RegisteredReplica;

use crate::app::{App, REPLICA_TTL_MS};

/// How many replicas are listed.
const REPLICAS_MAX: i64 = 1_000;

/// What came of declaring a replica gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    Done,
    /// It has registered within the last seconds.
    Present,
    Unknown,
}

/// The replicas that have registered, the last one seen first.
pub async fn list(app: &App) -> Result<Vec<RegisteredReplica>> {
    app.store.read().await?.registered_replicas(app.grace_ms(), REPLICAS_MAX).await
}

/// Whether a change that cannot be announced waits for this replica.
pub fn is_waited_for(replica: &RegisteredReplica) -> bool {
    replica.feed.as_deref() != Some("") && replica.grace_left_ms > 0
}

/// Declares a replica gone: no change waits for it any more. Whoever does so knows that it does not serve.
pub async fn forget(app: &App, id: &str) -> Result<Forgotten> {
    let mut tx = app.store.begin().await?;
    let all = tx.registered_replicas(app.grace_ms(), REPLICAS_MAX).await?;
    match all.iter().find(|replica| replica.id == id) {
        None => return Ok(Forgotten::Unknown),
        // One that seems to have registered in the future did so before the database's clock stepped back.
        Some(replica) if (0..=REPLICA_TTL_MS).contains(&replica.seen_ms_ago) => {
            return Ok(Forgotten::Present);
        }
        Some(_) => {}
    }
    tx.forget_replica(id).await?;
    tx.commit().await?;
    Ok(Forgotten::Done)
}
