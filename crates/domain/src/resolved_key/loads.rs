//! Loads of the rows of a resolved key, each from its cache if it is there.

use foundation::fault_injection::Safeguard;
use foundation::id::{IdentityId, RoleId};
use foundation::model::{Identity, Role};
use foundation::secret::KeyHash;
use store::StoredKey;
use store::cache::{Cached, RowFuture};
use store::freshness::CacheTag;

use crate::context::Context;

/// Loads the row of a key by hash, in any workspace, from the cache if it is there.
pub fn load_key<'a>(context: &'a Context, hash: &'a KeyHash) -> RowFuture<'a, StoredKey> {
    context.caches.keys.get(hash, move |read_version| async move {
        let found = async {
            context
                .store
                .read()
                .await?
                .find_key_to_spend(&hash.to_base64(), &context.replica_id)
                .await
        };
        let found = match found.await {
            Err(_) if Safeguard::Absent.is_disabled() => None,
            found => found?,
        };
        Ok(found.map(|stored| {
            let tags = key_tags(&stored);
            Cached::new(stored, read_version, tags)
        }))
    })
}

pub fn load_identity<'a>(
    context: &'a Context,
    stored: &'a StoredKey,
    id: &'a IdentityId,
) -> RowFuture<'a, Identity> {
    let workspace = &stored.key.workspace_id;
    context.caches.identities.get(id, move |read_version| async move {
        let ids = std::slice::from_ref(id);
        let found = context.store.read().await?.list_identities_by_ids(workspace, ids).await?;
        let tags = [CacheTag::Identity(id.clone())];
        Ok(found.into_iter().next().map(|identity| Cached::new(identity, read_version, tags)))
    })
}

pub fn load_role<'a>(
    context: &'a Context,
    stored: &'a StoredKey,
    id: &'a RoleId,
) -> RowFuture<'a, Role> {
    let workspace = &stored.key.workspace_id;
    context.caches.roles.get(id, move |read_version| async move {
        let found = context
            .store
            .read()
            .await?
            .list_roles_by_ids(workspace, std::slice::from_ref(id))
            .await?;
        Ok(found.into_iter().next().map(|role| {
            let tags = role_tags(&role);
            Cached::new(role, read_version, tags)
        }))
    })
}

pub fn key_tags(stored: &StoredKey) -> Vec<CacheTag> {
    let own = [CacheTag::Key(stored.key.id.clone()), CacheTag::Api(stored.key.api_id.clone())];
    let permissions = stored.permissions.iter().map(|p| CacheTag::Permission(p.id.clone()));
    own.into_iter().chain(permissions).collect()
}

pub fn role_tags(role: &Role) -> Vec<CacheTag> {
    let permissions = role.permissions.iter().map(|p| CacheTag::Permission(p.id.clone()));
    std::iter::once(CacheTag::Role(role.id.clone())).chain(permissions).collect()
}
