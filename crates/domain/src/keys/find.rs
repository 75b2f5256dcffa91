//! Finding keys for verification.

use std::sync::Arc;

use foundation::secret::KeyHash;
use store::cache::{Load, PeekFuture, RowFuture};

use super::Keys;
use crate::resolved_key::{ResolvedKey, load_key, resolve};

/// Finds a resolved key by hash, in any workspace.
pub fn find_by_hash<'a>(keys: &'a Keys, hash: &'a KeyHash) -> RowFuture<'a, ResolvedKey> {
    keys.resolved_keys.get(hash, move |load: Load<ResolvedKey>| async move {
        let mark_generation = keys.ledger.mark_generation();
        let known = load.stale.and_then(|stale| stale.value.fresh_row(&keys.context));
        let row = match known {
            Some(row) => row,
            None => match load_key(&keys.context, &keys.key_reads, hash, load.version).await? {
                Some(row) => Arc::new(row),
                None => return Ok(None),
            },
        };
        let resolved = resolve(&keys.context, row, load.version).await?;
        resolved.value.lease_hint.record_read(mark_generation);
        Ok(Some(resolved))
    })
}

/// Returns what is cached for a hash, without a load.
pub fn peek_by_hash<'a>(keys: &'a Keys, hash: &'a KeyHash) -> PeekFuture<'a, ResolvedKey> {
    keys.resolved_keys.peek(hash)
}
