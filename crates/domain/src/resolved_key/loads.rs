//! Loads of the rows of a resolved key: of identities and roles, which keys share, each from its cache if it is there.

use foundation::error::Result;
use foundation::fault_injection::Safeguard;
use foundation::id::{IdentityId, RoleId, WorkspaceId};
use foundation::model::{Identity, Role};
use foundation::secret::KeyHash;
use store::cache::{Cached, RowFuture};
use store::freshness::{CacheTag, ReadVersion};
use store::{Reader, StoredKey};

use super::key_reads::KeyReads;
use crate::context::Context;

/// Loads the row of a key by hash, in any workspace. `version` was taken before.
pub async fn load_key(
    context: &Context,
    reads: &KeyReads,
    hash: &KeyHash,
    version: ReadVersion,
) -> Result<Option<Cached<StoredKey>>> {
    context.metrics.cache_loads.keys.inc();
    if let Some(cached) = load_key_from_standby(context, hash).await {
        return Ok(Some(cached));
    }
    let found = match reads.find(hash).await {
        Err(_) if Safeguard::Absent.is_disabled() => None,
        found => found?,
    };
    Ok(found.map(|stored| cache_key(stored, version)))
}

/// Loads a key without credits. What a replica may spend depends on leases and on its registration, which a standby may
/// not know yet.
async fn load_key_from_standby(context: &Context, hash: &KeyHash) -> Option<Cached<StoredKey>> {
    let query = |mut reader: Reader, replica| async move {
        reader.find_key_on_standby(&hash.to_base64(), replica).await
    };
    let to_cached = |stored: StoredKey, version| {
        stored.key.credits.is_none().then(|| cache_key(stored, version))
    };
    context.load_from_standby(query, to_cached).await
}

/// Returns the row of a key that was read at `version`, with its own cache tags.
pub fn cache_key(stored: StoredKey, version: ReadVersion) -> Cached<StoredKey> {
    let tags = key_tags(&stored);
    Cached::new(stored, version, tags)
}

pub fn load_identity<'a>(
    context: &'a Context,
    workspace: &'a WorkspaceId,
    id: &'a IdentityId,
) -> RowFuture<'a, Identity> {
    let to_cached =
        |identity, version| Cached::new(identity, version, [CacheTag::Identity(id.clone())]);
    context.caches.identities.get(id, move |load| async move {
        let query = |mut reader: Reader, replica| async move {
            reader.find_identity_on_standby(workspace, id, replica).await
        };
        let on_standby = |identity, version| Some(to_cached(identity, version));
        if let Some(cached) = context.load_from_standby(query, on_standby).await {
            return Ok(Some(cached));
        }
        let ids = std::slice::from_ref(id);
        let read =
            || async { context.store.read().await?.list_identities_by_ids(workspace, ids).await };
        let found = context.read_again_if_lost(read).await?;
        Ok(found.into_iter().next().map(|identity| to_cached(identity, load.version)))
    })
}

pub fn load_role<'a>(
    context: &'a Context,
    workspace: &'a WorkspaceId,
    id: &'a RoleId,
) -> RowFuture<'a, Role> {
    let to_cached = |role: Role, version| {
        let tags = role_tags(&role);
        Cached::new(role, version, tags)
    };
    context.caches.roles.get(id, move |load| async move {
        let query = |mut reader: Reader, replica| async move {
            reader.find_role_on_standby(workspace, id, replica).await
        };
        let on_standby = |role, version| Some(to_cached(role, version));
        if let Some(cached) = context.load_from_standby(query, on_standby).await {
            return Ok(Some(cached));
        }
        let ids = std::slice::from_ref(id);
        let read = || async { context.store.read().await?.list_roles_by_ids(workspace, ids).await };
        let found = context.read_again_if_lost(read).await?;
        Ok(found.into_iter().next().map(|role| to_cached(role, load.version)))
    })
}

/// The number of cache tags of a row besides those of its permissions, which follow.
pub const KEY_TAGS: usize = 2;

fn key_tags(stored: &StoredKey) -> Vec<CacheTag> {
    let own: [_; KEY_TAGS] =
        [CacheTag::Key(stored.key.id.clone()), CacheTag::Api(stored.key.api_id.clone())];
    let permissions = stored.permissions.iter().map(|p| CacheTag::Permission(p.id.clone()));
    own.into_iter().chain(permissions).collect()
}

pub fn role_tags(role: &Role) -> Vec<CacheTag> {
    let permissions = role.permissions.iter().map(|p| CacheTag::Permission(p.id.clone()));
    std::iter::once(CacheTag::Role(role.id.clone())).chain(permissions).collect()
}
