//! Finding keys for verification.

use foundation::secret::KeyHash;
use store::cache::{Cached, PeekFuture, RowFuture};

use super::Keys;
use crate::resolved_key::{ResolvedKey, load_key, resolve};

/// Finds a resolved key by hash, in any workspace.
pub fn find_by_hash<'a>(keys: &'a Keys, hash: &'a KeyHash) -> RowFuture<'a, ResolvedKey> {
    keys.resolved_keys.get(hash, move |read_version| async move {
        let mark_generation = keys.ledger.mark_generation();
        let row = load_key(&keys.context, &keys.key_reads, hash).await?;
        let Some(row) = row else { return Ok(None) };
        let (resolved, tags, version) = resolve(&keys.context, row).await?;
        resolved.lease_hint.record_read(mark_generation);
        Ok(Some(Cached::new(resolved, read_version.min(version), tags)))
    })
}

/// Returns what is cached for a hash, without a load.
pub fn peek_by_hash<'a>(keys: &'a Keys, hash: &'a KeyHash) -> PeekFuture<'a, ResolvedKey> {
    keys.resolved_keys.peek(hash)
}
