//! Estimates the size of cached rows: what their texts and lists take.
//!
//! Every field is named, so that a new one is not forgotten.

use foundation::id::IdentityId;
use foundation::model::{Identity, Key, Meta, Override, Permission, Ratelimit, Role};

use super::CacheValue;
use crate::{StoredKey, StoredNamespace};

impl CacheValue for StoredKey {
    fn heap_size(&self) -> usize {
        let Self {
            key,
            ratelimits,
            permissions,
            role_ids,
            refill: _,
            last_used_at: _,
            workspace_enabled: _,
            allowed_networks,
            home,
        } = self;
        key_size(key)
            + list_size(ratelimits, ratelimit_size)
            + list_size(permissions, permission_size)
            + list_size(role_ids, |id| id.as_str().len())
            + allowed_networks.as_ref().map_or(0, |networks| size_of_val(networks.as_slice()))
            + home.as_ref().map_or(0, |home| home.region.len())
    }
}

fn key_size(key: &Key) -> usize {
    let Key {
        id,
        workspace_id,
        api_id,
        hash,
        start,
        prefix,
        byte_length: _,
        name,
        meta,
        identity_id,
        owner_id,
        environment,
        is_enabled: _,
        expires_at: _,
        credits: _,
        created_at: _,
        updated_at: _,
    } = key;
    let identity_id = identity_id.as_ref().map(IdentityId::as_str);
    let meta = meta.as_ref().map(Meta::as_str);
    let optional =
        [prefix.as_deref(), name.as_deref(), owner_id.as_deref(), environment.as_deref()];
    let texts = [id.as_str(), workspace_id.as_str(), api_id.as_str(), hash, start];
    let optional = optional.into_iter().chain([identity_id, meta]).flatten();
    texts.into_iter().chain(optional).map(str::len).sum()
}

impl CacheValue for Identity {
    fn heap_size(&self) -> usize {
        let Self { id, external_id, meta, ratelimits, home } = self;
        id.as_str().len()
            + external_id.len()
            + meta.as_ref().map_or(0, |meta| meta.as_str().len())
            + list_size(ratelimits, ratelimit_size)
            + home.as_ref().map_or(0, |home| home.region.len())
    }
}

impl CacheValue for Role {
    fn heap_size(&self) -> usize {
        let Self { id, name, description, permissions } = self;
        let description = description.as_ref().map_or(0, String::len);
        id.as_str().len() + name.len() + description + list_size(permissions, permission_size)
    }
}

impl CacheValue for StoredNamespace {
    fn heap_size(&self) -> usize {
        let Self { namespace, overrides } = self;
        // The identifier is also the name by which the override is found.
        let override_size = |item: &Override| item.id.as_str().len() + 2 * item.identifier.len();
        namespace.id.as_str().len()
            + namespace.workspace_id.as_str().len()
            + namespace.name.len()
            + 2 * list_size(overrides.as_slice(), override_size)
    }
}

fn ratelimit_size(limit: &Ratelimit) -> usize {
    limit.id.as_str().len() + limit.name.len()
}

fn permission_size(permission: &Permission) -> usize {
    let Permission { id, slug, name, description } = permission;
    let description = description.as_ref().map_or(0, String::len);
    id.as_str().len() + slug.len() + name.len() + description
}

/// Returns the size of a list: that of its items, and of the heap of each.
fn list_size<T>(items: &[T], heap_size: impl Fn(&T) -> usize) -> usize {
    size_of_val(items) + items.iter().map(heap_size).sum::<usize>()
}
