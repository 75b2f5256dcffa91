//! Resolving keys: finding the identities and roles that their rows refer to.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use foundation::clock::Monotonic;
use foundation::error::Result;
use foundation::id::{IdentityId, RoleId};
use foundation::model::Identity;
use store::StoredKey;
use store::cache::Cached;
use store::freshness::{CacheTag, ReadVersion, VersionSlot};

use super::ResolvedKey;
use super::lease_hint::KeyCredits;
use super::limit::{RatelimitOwner, ResolvedLimit};
use super::loads::{KEY_TAGS, cache_key, load_identity, load_role, role_tags};
use super::packed_key::{ApiPart, PackedKey};
use super::permissions::KeyPermissions;
use crate::context::Context;
use crate::use_flag::UseFlag;

/// A key whose identity and roles are yet to be found.
pub struct UnresolvedKey {
    key: PackedKey,
    /// The version slots of the row's own cache tags.
    slots: Vec<VersionSlot>,
    credits: Option<Box<KeyCredits>>,
    /// The limits of the key itself.
    limits: Vec<Arc<ResolvedLimit>>,
    /// The slugs of the direct permissions.
    permissions: Vec<String>,
    role_ids: Vec<RoleId>,
}

impl UnresolvedKey {
    /// Takes from a row what a verification may read. `api` is the part of the row that other keys may share.
    pub fn new(context: &Context, row: &Cached<StoredKey>, api: Arc<ApiPart>) -> Self {
        let stored = &row.value;
        let id = &stored.key.id;
        let owner =
            RatelimitOwner { id: id.as_str(), home: stored.home.as_ref(), is_identity: false };
        let limit = |limit| ResolvedLimit::new(context, limit, owner);
        let credits = |account| Box::new(KeyCredits::new(id.clone(), account));
        Self {
            key: PackedKey::new(row, api),
            slots: row.slots().to_vec(),
            credits: stored.key.credits.map(credits),
            limits: stored.ratelimits.iter().map(limit).collect(),
            permissions: stored.permissions.iter().map(|p| p.slug.clone()).collect(),
            role_ids: stored.role_ids.clone(),
        }
    }

    /// Returns a stale key as it was before it was resolved, if its own row may still be used: then only rows that it
    /// refers to have changed.
    pub fn from_stale(context: &Context, stale: &Cached<ResolvedKey>) -> Option<Self> {
        let ResolvedKey { key, credits, permissions, limits, .. } = &stale.value;
        let permissions = permissions.as_deref();
        let direct_count = permissions.map_or(0, KeyPermissions::direct_count);
        let slots = stale.slots().get(..KEY_TAGS + direct_count)?;
        if !context.freshness.is_fresh(key.read_version(), slots, Monotonic::now()) {
            return None;
        }
        let slugs = permissions.into_iter().flat_map(KeyPermissions::direct_slugs);
        Some(Self {
            key: key.clone(),
            slots: slots.to_vec(),
            credits: credits.clone(),
            limits: limits.iter().filter(|limit| !limit.is_shared).cloned().collect(),
            permissions: slugs.cloned().collect(),
            role_ids: permissions.map_or_else(Vec::new, |known| known.role_ids.to_vec()),
        })
    }

    /// Records that the row was read in this mark generation or a later one.
    pub fn record_read(&self, mark_generation: u64) {
        if let Some(credits) = &self.credits {
            credits.lease_hint.record_read(mark_generation);
        }
    }

    /// Joins the key with its identity, the names of its roles, and the slugs of their permissions.
    fn into_resolved(
        self,
        context: &Context,
        identity: Option<Arc<Cached<Identity>>>,
        roles: Vec<String>,
        role_permissions: Vec<String>,
    ) -> ResolvedKey {
        let Self { key, slots: _, credits, mut limits, permissions, role_ids } = self;
        if let Some(identity) = identity.as_ref().map(|identity| &identity.value) {
            let (id, home) = (identity.id.as_str(), identity.home.as_ref());
            let owner = RatelimitOwner { id, home, is_identity: true };
            let shared = identity.ratelimits.iter();
            let shared = shared.filter(|limit| limits.iter().all(|own| *own.name != *limit.name));
            let shared: Vec<_> =
                shared.map(|limit| ResolvedLimit::new(context, limit, owner)).collect();
            limits.extend(shared);
        }
        limits.sort_by(|a, b| a.name.cmp(&b.name));
        ResolvedKey {
            key,
            credits,
            identity,
            permissions: KeyPermissions::new(role_ids, roles, &permissions, role_permissions),
            limits: limits.into(),
            cached_json: OnceLock::new(),
            cached_headers: OnceLock::new(),
            valid_series: OnceLock::new(),
            use_flag: UseFlag::default(),
            last_allowed_principal: AtomicU64::new(0),
        }
    }
}

/// Resolves a key whose row was fresh, or was read, after `version` was taken.
pub async fn resolve(
    context: &Context,
    mut unresolved: UnresolvedKey,
    version: ReadVersion,
) -> Result<Cached<ResolvedKey>> {
    let mut slots = std::mem::take(&mut unresolved.slots);
    let mut version = version.computed_from(unresolved.key.read_version());
    let workspace = unresolved.key.workspace_id();
    let identity_id = unresolved.key.identity_id().map(IdentityId::from);
    let identity = match &identity_id {
        None => None,
        Some(id) => {
            slots.push(VersionSlot::from_tag(&CacheTag::Identity(id.clone())));
            load_identity(context, workspace, id).await?
        }
    };
    if let Some(identity) = &identity {
        version = version.computed_from(identity.read_version());
    }
    let mut roles = Vec::with_capacity(unresolved.role_ids.len());
    let mut permissions = Vec::new();
    for id in &unresolved.role_ids {
        slots.push(VersionSlot::from_tag(&CacheTag::Role(id.clone())));
        let Some(role) = load_role(context, workspace, id).await? else { continue };
        version = version.computed_from(role.read_version());
        slots.extend(role_tags(&role.value).iter().map(VersionSlot::from_tag));
        roles.push(role.value.name.clone());
        permissions.extend(role.value.permissions.iter().map(|p| p.slug.clone()));
    }
    let resolved = unresolved.into_resolved(context, identity, roles, permissions);
    Ok(Cached::from_slots(resolved, version, slots.into()))
}

/// Resolves keys that have just been read, in their order, and returns each with its row. Each kind of related row is read in
/// one statement.
pub async fn resolve_all(
    context: &Context,
    stored: Vec<StoredKey>,
    read_version: ReadVersion,
) -> Result<Vec<(StoredKey, ResolvedKey)>> {
    let Some(first) = stored.first() else { return Ok(Vec::new()) };
    let workspace = first.key.workspace_id.clone();
    let mut reader = context.store.read().await?;
    let mut ids: Vec<_> = stored.iter().filter_map(|key| key.key.identity_id.clone()).collect();
    ids.sort();
    ids.dedup();
    let mut identities = HashMap::new();
    if !ids.is_empty() {
        for identity in reader.list_identities_by_ids(&workspace, &ids).await? {
            identities
                .insert(identity.id.clone(), Arc::new(Cached::new(identity, read_version, [])));
        }
    }
    let mut ids: Vec<_> = stored.iter().flat_map(|key| key.role_ids.clone()).collect();
    ids.sort();
    ids.dedup();
    let mut roles = HashMap::new();
    if !ids.is_empty() {
        roles.extend(
            reader
                .list_roles_by_ids(&workspace, &ids)
                .await?
                .into_iter()
                .map(|r| (r.id.clone(), r)),
        );
    }
    let resolve = |stored: StoredKey| {
        let row = cache_key(stored, read_version);
        let of_key: Vec<_> = row.value.role_ids.iter().filter_map(|id| roles.get(id)).collect();
        let names = of_key.iter().map(|role| role.name.clone()).collect();
        let permissions = of_key.iter().flat_map(|role| &role.permissions);
        let slugs = permissions.map(|permission| permission.slug.clone()).collect();
        let identity = row.value.key.identity_id.as_ref().and_then(|id| identities.get(id));
        let api = Arc::new(ApiPart::from(&row.value));
        let unresolved = UnresolvedKey::new(context, &row, api);
        let resolved = unresolved.into_resolved(context, identity.cloned(), names, slugs);
        (row.value, resolved)
    };
    Ok(stored.into_iter().map(resolve).collect())
}

#[cfg(test)]
mod tests {
    use foundation::clock::Clock;
    use foundation::config::Config;
    use foundation::model::{Credits, Permission, Ratelimit};

    use store::cache::CacheValue as _;

    use super::super::packed_key::tests::stored_key;
    use super::*;

    /// Returns the context of an embedded server whose store has not been opened.
    fn embedded_context() -> Context {
        let mut settings = Config::default().validate().expect("valid settings");
        settings.cache_bytes_max = 1 << 20;
        Context::new(settings, Clock::System).expect("a context").0
    }

    fn ratelimit(id: &str, name: &str) -> Ratelimit {
        Ratelimit {
            id: id.into(),
            name: name.to_owned(),
            limit: 1,
            duration_ms: 1_000,
            auto_apply: true,
            is_approximate: false,
        }
    }

    fn permission(slug: &str) -> Permission {
        let id = format!("perm_{slug}").into();
        Permission { id, slug: slug.to_owned(), name: slug.to_owned(), description: None }
    }

    /// Reads a key with credits, two permissions, a role and a limit.
    fn read_key(context: &Context) -> Cached<StoredKey> {
        let mut stored = stored_key("live_3x", [Some("name"), None, None, Some("id_1")]);
        stored.key.credits =
            Some(Credits { balance: 5, last_lease_number: 2, refill: None, refilled_period: 0 });
        stored.ratelimits = vec![ratelimit("rl_1", "own")];
        stored.permissions = vec![permission("b"), permission("a")];
        stored.role_ids = vec![RoleId::from("role_1")];
        cache_key(stored, context.freshness.read_version(Monotonic::now()))
    }

    /// Joins a key with an identity that has a limit of the same name and another one, and with a role.
    fn join(context: &Context, unresolved: UnresolvedKey) -> ResolvedKey {
        let identity = Identity {
            id: "id_1".into(),
            external_id: "user_1".to_owned(),
            meta: None,
            ratelimits: vec![ratelimit("rl_2", "own"), ratelimit("rl_3", "all")],
            home: None,
        };
        let version = context.freshness.read_version(Monotonic::now());
        let identity = Arc::new(Cached::new(identity, version, []));
        let slugs = vec!["a".to_owned(), "z".to_owned()];
        unresolved.into_resolved(context, Some(identity), vec!["role".to_owned()], slugs)
    }

    /// Resolves a key as it is cached.
    fn resolve_key(context: &Context) -> Cached<ResolvedKey> {
        let row = read_key(context);
        let unresolved = UnresolvedKey::new(context, &row, Arc::new(ApiPart::from(&row.value)));
        unresolved.record_read(3);
        let identity = VersionSlot::from_tag(&CacheTag::Identity("id_1".into()));
        let slots = row.slots().iter().copied().chain([identity]).collect();
        Cached::from_slots(join(context, unresolved), row.read_version(), slots)
    }

    #[test]
    fn stale_key_is_resolved_again_without_its_row_when_only_its_identity_has_changed() {
        let context = embedded_context();
        let resolved = resolve_key(&context);

        context.freshness.record_invalidation(&CacheTag::Identity("id_1".into()));
        let unresolved = UnresolvedKey::from_stale(&context, &resolved).expect("a fresh row");

        assert_eq!(unresolved.slots, read_key(&context).slots());
        let (again, resolved) = (join(&context, unresolved), resolved.value);
        let limits: Vec<_> =
            again.limits.iter().map(|it| (&*it.id, &*it.name, it.is_shared)).collect();
        assert_eq!(limits, [("rl_3", "all", true), ("rl_1", "own", false)]);
        assert_eq!(again.limits, resolved.limits);
        let shared: Vec<_> = again.shared_ratelimits().map(|limit| limit.name.as_str()).collect();
        assert_eq!(shared, ["all"]);
        assert_eq!(again.permissions(), ["a", "b", "z"]);
        assert_eq!(again.roles(), ["role"]);
        let credits = again.credits().expect("credits");
        assert_eq!((credits.account.balance, credits.lease_hint.last_lease()), (5, (0, 3)));
    }

    #[test]
    fn row_of_stale_key_is_read_again_when_it_has_changed() {
        for tag in [
            CacheTag::Key("key_1".into()),
            CacheTag::Api("api_1".into()),
            CacheTag::Permission("perm_a".into()),
            CacheTag::Permission("perm_b".into()),
        ] {
            let context = embedded_context();
            let resolved = resolve_key(&context);

            context.freshness.record_invalidation(&tag);

            assert!(UnresolvedKey::from_stale(&context, &resolved).is_none(), "{tag}");
        }
    }

    #[test]
    fn size_of_key_includes_its_texts_and_what_few_keys_have() {
        let context = embedded_context();
        let size = |change: fn(&mut StoredKey)| {
            let mut stored = stored_key("live_3x", [None; 4]);
            change(&mut stored);
            let row = cache_key(stored, context.freshness.read_version(Monotonic::now()));
            let api = Arc::new(ApiPart::from(&row.value));
            let unresolved = UnresolvedKey::new(&context, &row, api);
            unresolved.into_resolved(&context, None, Vec::new(), Vec::new()).heap_size()
        };
        let plain = size(|_| {});

        let named = size(|stored| stored.key.name = Some("name".to_owned()));
        assert_eq!(named, plain + 2 * "name".len(), "the reply repeats it");
        let metered = size(|stored| {
            stored.key.credits = Some(Credits {
                balance: 5,
                last_lease_number: 2,
                refill: None,
                refilled_period: 0,
            });
        });
        assert_eq!(metered, plain + size_of::<KeyCredits>() + "key_1".len());
        let limited = size(|stored| stored.ratelimits = vec![ratelimit("rl_1", "own")]);
        assert!(limited > plain + size_of::<ResolvedLimit>(), "{limited}");
        let permitted = size(|stored| stored.permissions = vec![permission("a")]);
        assert!(permitted > plain + size_of::<KeyPermissions>(), "{permitted}");
    }
}
