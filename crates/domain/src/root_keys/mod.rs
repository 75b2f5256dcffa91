//! Root keys, with which programs authenticate to Keyward.

mod issue;

pub use issue::{
    NAME_MAX, NewRootKey, RotationResult, create, find_by_secret, get, list_for_caller, restore,
    revoke, rotate,
};
pub use store::StoredRootKey;

use std::sync::Arc;

use foundation::clock::{Monotonic, Timestamp};
use foundation::error::{AuthenticationError, Error, ResourceRef, Result};
use foundation::id::{KeyId, WorkspaceId};
use foundation::model::RootKey;
use foundation::secret::{KeyHash, Plaintext};
use store::cache::{Cached, RowCache, RowFuture};
use store::freshness::{CacheTag, Freshness, ReadVersion};
use store::{Reader, Store, Tx};

use crate::audit::{self, Actor, AuditEvent, FieldChanges, Target};
use crate::caller::Principal;
use crate::context::Context;
use crate::context::new_key_tag;
use crate::last_used;
use crate::last_used::LastUsed;
use crate::permission::{Action, Grants};
use crate::workspaces;

/// Authenticates root keys.
pub struct RootKeys {
    pub context: Arc<Context>,
    pub last_used: Arc<LastUsed>,
    cache: RowCache<KeyHash, Principal>,
    /// The anonymous principal: a caller without a root key. Created once, because every v1 verification without a root
    /// key uses it.
    pub anonymous: Arc<Cached<Principal>>,
}

impl RootKeys {
    /// Creates a service with an empty cache.
    pub fn new(context: Arc<Context>, last_used: Arc<LastUsed>) -> Self {
        let loads = &context.metrics.cache_loads.root_keys;
        Self {
            cache: RowCache::new(&context.caches.memory, 1 << 8, loads, new_key_tag),
            anonymous: anonymous_principal(&context.freshness),
            context,
            last_used,
        }
    }
}

/// The prefix of root keys that Keyward generates.
const ROOT_KEY_PREFIX: &str = "keyward";
/// The number of random bytes of a root key.
const SECRET_BYTES: u8 = 24;

/// Returns the principal of a bearer token, or an error if the root key does not exist, is revoked or expired, or its
/// workspace is disabled.
pub async fn authenticate(root_keys: &RootKeys, bearer: &[u8]) -> Result<Arc<Cached<Principal>>> {
    let found = find_by_hash(root_keys, &KeyHash::compute(bearer)).await?;
    let principal = found.ok_or(Error::Unauthenticated(AuthenticationError::NotFound))?;
    let key = principal.value.root_key();
    let key = key.ok_or(Error::Unauthenticated(AuthenticationError::NotFound))?;
    if key.revoked_at.is_some() {
        return Err(Error::Unauthenticated(AuthenticationError::Revoked));
    }
    if key.expires_at.is_some_and(|expires| expires < root_keys.context.clock.now()) {
        return Err(Error::Unauthenticated(AuthenticationError::Expired));
    }
    if !key.is_workspace_enabled {
        return Err(Error::WorkspaceDisabled);
    }
    last_used::record_root_key_use(&root_keys.last_used, &principal);
    Ok(principal)
}

/// Returns the anonymous principal: it has no root key, no workspace and no permissions.
pub fn anonymous_principal(freshness: &Freshness) -> Arc<Cached<Principal>> {
    let key = RootKey {
        id: KeyId::from(""),
        workspace_id: WorkspaceId::from(""),
        is_workspace_enabled: true,
        start: String::new(),
        name: None,
        permissions: Vec::new(),
        created_at: Timestamp(0),
        expires_at: None,
        revoked_at: None,
    };
    Arc::new(Cached::new(
        Principal::from_root_key(key, Grants::default()),
        freshness.read_version(Monotonic::now()),
        [],
    ))
}

fn find_by_hash<'a>(root_keys: &'a RootKeys, hash: &'a KeyHash) -> RowFuture<'a, Principal> {
    let context = &root_keys.context;
    root_keys.cache.get(hash, move |load| async move {
        let hash = &hash.to_base64();
        let query = |mut reader: Reader, replica| async move {
            reader.find_root_key_on_standby(hash, replica).await
        };
        let on_standby = |key, version| Some(to_cached_principal(key, version));
        if let Some(cached) = context.load_from_standby(query, on_standby).await {
            return Ok(Some(cached));
        }
        let read = || async { context.store.read().await?.find_root_key_by_hash(hash).await };
        let found = context.read_again_if_lost(read).await?;
        Ok(found.map(|key| to_cached_principal(key, load.version)))
    })
}

fn to_cached_principal(key: RootKey, version: ReadVersion) -> Cached<Principal> {
    let grants: Grants = key.permissions.iter().map(String::as_str).collect();
    let tag = CacheTag::RootKey(key.id.clone());
    Cached::new(Principal::from_root_key(key, grants), version, [tag])
}

/// Returns all permissions of root keys, each for all resources.
pub fn all_permissions() -> Vec<String> {
    Action::ALL.iter().map(|action| action.to_wildcard_tuple()).collect()
}

/// Creates a root key for an operator, with the bounds of [`create`]. The operator needs no permissions: they have access
/// to the server itself.
pub async fn create_as_operator(
    context: &Context,
    workspace: &WorkspaceId,
    new: NewRootKey,
) -> Result<(KeyId, Plaintext)> {
    let secret = generate_secret();
    let mut tx = context.store.begin().await?;
    issue::validate(&mut tx, workspace, &new, context.clock.now()).await?;
    let id = insert_and_record(&mut tx, context, workspace, new, &secret).await?.id;
    context.commit(tx).await?;
    Ok((id, secret))
}

fn generate_secret() -> Plaintext {
    Plaintext::generate(Some(ROOT_KEY_PREFIX), SECRET_BYTES)
}

async fn insert_and_record(
    tx: &mut Tx,
    context: &Context,
    workspace: &WorkspaceId,
    new: NewRootKey,
    secret: &Plaintext,
) -> Result<RootKey> {
    let key = insert_root_key(tx, context, workspace, new, secret).await?;
    let (targets, actor) = ([root_key_target(&key)], Actor::Command("cli"));
    let (now, event) = (key.created_at, AuditEvent::RootKeyCreated);
    let change = FieldChanges::created(&issue::root_key_snapshot(&key))?;
    audit::record_change(tx, actor, workspace, now, event, &targets, change).await?;
    Ok(key)
}

/// Inserts a root key without an audit entry; the calling function records it.
async fn insert_root_key(
    tx: &mut Tx,
    context: &Context,
    workspace: &WorkspaceId,
    new: NewRootKey,
    secret: &Plaintext,
) -> Result<RootKey> {
    let has_prefix = secret.expose().starts_with(ROOT_KEY_PREFIX);
    let key = RootKey {
        id: KeyId::random(),
        workspace_id: workspace.clone(),
        is_workspace_enabled: true,
        start: secret.start(has_prefix.then_some(ROOT_KEY_PREFIX)),
        name: new.name,
        permissions: new.permissions,
        created_at: context.clock.now(),
        expires_at: new.expires_at,
        revoked_at: None,
    };
    let hash = secret.hash();
    tx.insert_root_key(&key, &hash.to_base64()).await.map_err(|e| {
        match e.is_foreign_key_violation() {
            true => Error::not_found(ResourceRef::Workspace(workspace.clone())),
            false => e,
        }
    })?;
    tx.record_change(CacheTag::NewKey(hash.fingerprint()));
    Ok(key)
}

fn root_key_target(key: &RootKey) -> Target<'_> {
    Target::new("key", key.id.as_str()).with_name(key.name.as_deref())
}

/// Lists the root keys of a workspace, sorted by id, including revoked ones.
pub async fn list(context: &Context, workspace: &WorkspaceId) -> Result<Vec<RootKey>> {
    context.store.read().await?.list_all_root_keys(workspace).await
}

/// Revokes a root key of any workspace for an operator.
pub async fn revoke_as_operator(context: &Context, id: &KeyId) -> Result<()> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let revoked = tx.revoke_root_key(id, now).await?;
    let workspace = revoked.ok_or_else(|| Error::not_found(ResourceRef::RootKey(id.clone())))?;
    let found = tx.find_root_key(&workspace, id).await?;
    let key = found.ok_or_else(|| Error::not_found(ResourceRef::RootKey(id.clone())))?.key;
    let targets = [root_key_target(&key)];
    let (actor, event) = (Actor::Command("cli"), AuditEvent::RootKeyRevoked);
    let change = FieldChanges::deleted(&issue::root_key_snapshot(&key))?;
    audit::record_change(&mut tx, actor, &workspace, now, event, &targets, change).await?;
    tx.record_change(CacheTag::RootKey(id.clone()));
    context.commit(tx).await
}

/// Creates a workspace.
pub async fn create_workspace(context: &Context, name: &str) -> Result<WorkspaceId> {
    workspaces::validate_name(name)?;
    let id = WorkspaceId::random();
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    tx.insert_workspace(&id, name, now).await?;
    let target = Target::new("workspace", id.as_str()).with_name(Some(name));
    let (actor, event) = (Actor::Command("cli"), AuditEvent::WorkspaceCreated);
    audit::record(&mut tx, actor, &id, now, event, &[target]).await?;
    context.commit(tx).await?;
    Ok(id)
}

/// Returns the id of the workspace that the first start creates. The id is fixed, so that only one of several replicas
/// that start on an empty database creates it.
pub fn default_workspace() -> WorkspaceId {
    WorkspaceId::from("ws_default")
}

/// The result of [`bootstrap`].
#[derive(Debug)]
pub enum BootstrapResult {
    /// This is not the first start: the workspace existed.
    AlreadyExists,
    /// The workspace and a root key with all permissions were created. The root key is shown only now.
    Created(Plaintext),
    /// The workspace was created; its root key is the configured one.
    Configured,
}

/// Creates the default workspace if it does not exist. Otherwise writes nothing, so that commands that only read also
/// work while the database cannot be written.
pub async fn bootstrap_workspace(context: &Context) -> Result<()> {
    let workspace = default_workspace();
    if context.store.read().await?.find_workspace(&workspace).await?.is_some() {
        return Ok(());
    }
    let mut tx = context.store.begin().await?;
    tx.insert_workspace(&workspace, "default", context.clock.now()).await?;
    context.commit(tx).await
}

/// Creates the default workspace and its first root key in one transaction if the workspace does not exist, and the
/// configured root key if it does not exist. If several replicas start at the same time, one of them creates them. The
/// store is passed because `app.store` is not ready yet.
pub async fn bootstrap(
    context: &Context,
    store: &Store,
    configured: Option<&Plaintext>,
) -> Result<BootstrapResult> {
    if context.redis.is_some() {
        // Before it spends credits: from now on the other replicas wait for its reports of what it spent. And before the
        // root key is created, which would be lost if this failed.
        context.register_replica(store).await?;
    }
    let workspace = default_workspace();
    let mut tx = store.begin().await?;
    let is_first = tx.insert_workspace(&workspace, "default", context.clock.now()).await?;
    let result = match (is_first, configured) {
        (false, _) => BootstrapResult::AlreadyExists,
        (true, Some(_)) => BootstrapResult::Configured,
        (true, None) => {
            let secret = generate_secret();
            let name = Some("created at the first start".to_owned());
            let new = NewRootKey { name, permissions: all_permissions(), expires_at: None };
            insert_and_record(&mut tx, context, &workspace, new, &secret).await?;
            BootstrapResult::Created(secret)
        }
    };
    context.commit_to(store, tx).await?;
    if let Some(secret) = configured {
        ensure_configured_root_key(context, store, &workspace, secret).await?;
    }
    Ok(result)
}

/// Inserts the configured root key if it does not exist.
async fn ensure_configured_root_key(
    context: &Context,
    store: &Store,
    workspace: &WorkspaceId,
    secret: &Plaintext,
) -> Result<()> {
    let mut tx = store.begin().await?;
    if tx.find_root_key_by_hash(&secret.hash().to_base64()).await?.is_some() {
        return Ok(());
    }
    let name = Some("KEYWARD_ROOT_KEY".to_owned());
    let new = NewRootKey { name, permissions: all_permissions(), expires_at: None };
    match insert_and_record(&mut tx, context, workspace, new, secret).await {
        Ok(_) => context.commit_to(store, tx).await,
        // Another replica has inserted it first.
        Err(e) if e.is_unique_violation_of("root_keys_hash_unique") => Ok(()),
        Err(e) => Err(e),
    }
}
