//! Finding keys for verification.

use std::sync::Arc;

use foundation::error::Result;
use foundation::secret::KeyHash;
use store::cache::Cached;

use super::Keys;
use crate::resolved_key::{ResolvedKey, load_key, resolve};

/// Finds a resolved key by hash, in any workspace.
pub async fn find_by_hash(keys: &Keys, hash: KeyHash) -> Result<Option<Arc<Cached<ResolvedKey>>>> {
    keys.resolved_keys
        .get(&hash, |read_version| async move {
            let mark_generation = keys.ledger.mark_generation();
            let Some(row) = load_key(&keys.context, &hash).await? else { return Ok(None) };
            let (resolved, tags) = resolve(&keys.context, row).await?;
            resolved.lease_hint.record_read(mark_generation);
            Ok(Some(Cached::new(resolved, read_version, tags)))
        })
        .await
}
