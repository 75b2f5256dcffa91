//! Finding keys for verification.

use std::sync::Arc;

use foundation::secret::KeyHash;
use store::cache::{Load, PeekFuture, RowFuture};

use super::Keys;
use crate::resolved_key::{LeaseHint, ResolvedKey, load_key, resolve};

/// Finds a resolved key by hash, in any workspace.
pub fn find_by_hash<'a>(keys: &'a Keys, hash: &'a KeyHash) -> RowFuture<'a, ResolvedKey> {
    keys.resolved_keys.get(hash, move |load: Load<ResolvedKey>| async move {
        // A row that was read earlier says no more of its lease than was known then.
        let known = load.stale.and_then(|stale| {
            Some((stale.value.fresh_row(&keys.context)?, stale.value.lease_hint.clone()))
        });
        let (row, lease_hint) = match known {
            Some(known) => known,
            None => {
                let lease_hint = LeaseHint::default();
                lease_hint.record_read(keys.ledger.mark_generation());
                match load_key(&keys.context, &keys.key_reads, hash, load.version).await? {
                    Some(row) => (Arc::new(row), lease_hint),
                    None => return Ok(None),
                }
            }
        };
        let mut resolved = resolve(&keys.context, row, load.version).await?;
        resolved.value.lease_hint = lease_hint;
        Ok(Some(resolved))
    })
}

/// Returns what is cached for a hash, without a load.
pub fn peek_by_hash<'a>(keys: &'a Keys, hash: &'a KeyHash) -> PeekFuture<'a, ResolvedKey> {
    keys.resolved_keys.peek(hash)
}
