//! Finding keys for verification.

use foundation::secret::KeyHash;
use store::cache::{Load, PeekFuture, RowFuture};

use super::Keys;
use crate::resolved_key::{ApiPart, ResolvedKey, UnresolvedKey, load_key, resolve};

/// Finds a resolved key by hash, in any workspace.
pub fn find_by_hash<'a>(keys: &'a Keys, hash: &'a KeyHash) -> RowFuture<'a, ResolvedKey> {
    keys.resolved_keys.get(hash, move |load: Load<ResolvedKey>| async move {
        // A row that was read earlier says no more of its lease than was known then.
        let known = load.stale.and_then(|stale| UnresolvedKey::from_stale(&keys.context, &stale));
        let unresolved = match known {
            Some(known) => known,
            None => {
                let mark_generation = keys.ledger.mark_generation();
                let row = load_key(&keys.context, &keys.key_reads, hash, load.version).await?;
                let Some(row) = row else { return Ok(None) };
                let api = keys.api_parts.share(ApiPart::from(&row.value));
                let unresolved = UnresolvedKey::new(&keys.context, &row, api);
                unresolved.record_read(mark_generation);
                unresolved
            }
        };
        resolve(&keys.context, unresolved, load.version).await.map(Some)
    })
}

/// Returns what is cached for a hash, without a load.
pub fn peek_by_hash<'a>(keys: &'a Keys, hash: &'a KeyHash) -> PeekFuture<'a, ResolvedKey> {
    keys.resolved_keys.peek(hash)
}
