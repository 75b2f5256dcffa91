//! Listing and removing registered replicas, for operators.

use foundation::error::Result;
use store::RegisteredReplica;

use crate::context::Context;
use crate::context::REPLICA_TTL_MS;

/// The maximum number of replicas that are listed.
pub const REPLICAS_MAX: i64 = 1_000;

/// The result of [`forget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgetResult {
    Removed,
    /// The replica has registered within [`REPLICA_TTL_MS`], so it is still running.
    StillRunning,
    NotFound,
}

/// Lists the registered replicas, the most recently seen first.
pub async fn list(context: &Context) -> Result<Vec<RegisteredReplica>> {
    context.store.read().await?.list_registered_replicas(context.grace_ms(), REPLICAS_MAX).await
}

/// Reports whether a change that cannot be published waits for this replica.
pub fn is_waited_for(replica: &RegisteredReplica) -> bool {
    replica.feed.as_deref() != Some("") && replica.grace_left_ms > 0
}

/// Removes the registration of a replica, so that changes no longer wait for it. The operator must know that the
/// replica does not serve.
pub async fn forget(context: &Context, id: &str) -> Result<ForgetResult> {
    let mut tx = context.store.begin().await?;
    let all = tx.list_registered_replicas(context.grace_ms(), REPLICAS_MAX).await?;
    match all.iter().find(|replica| replica.id == id) {
        None => return Ok(ForgetResult::NotFound),
        // A registration in the future was made before the clock of the database was set back.
        Some(replica) if (0..=REPLICA_TTL_MS).contains(&replica.seen_ms_ago) => {
            return Ok(ForgetResult::StillRunning);
        }
        Some(_) => {}
    }
    tx.clear_replica_feed(id).await?;
    tx.commit().await?;
    Ok(ForgetResult::Removed)
}
