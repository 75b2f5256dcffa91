//! What a verification needs to know of a key: its row and the rows that it points to, put together.
//!
//! The rows are cached one by one and shared; a view only points at them. It is remembered by the
//! hash of its key, and made again, from the cached rows, when one of them has changed.

use std::sync::Arc;

use crate::app::App;
use crate::error::Result;
use crate::id::{IdentityId, RoleId};
use crate::model::{Identity, Ratelimit, Role};
use crate::secret::KeyHash;
use crate::store::StoredKey;
use crate::store::cache::Cached;
use crate::store::freshness::Subject;

#[derive(Debug)]
pub struct View {
    row: Arc<Cached<StoredKey>>,
    identity: Option<Arc<Cached<Identity>>>,
    /// Names, sorted.
    pub roles: Vec<String>,
    /// Slugs, the key's own and those of its roles; sorted, without doubles.
    pub permissions: Vec<String>,
}

impl View {
    pub fn stored(&self) -> &StoredKey {
        &self.row.value
    }

    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref().map(|identity| &identity.value)
    }

    /// Whether the key has the permission, of itself or through a role.
    pub fn has(&self, slug: &str) -> bool {
        self.permissions.binary_search_by(|known| known.as_str().cmp(slug)).is_ok()
    }

    /// The limits of the identity that no limit of the key hides.
    pub fn shared_ratelimits(&self) -> impl Iterator<Item = &Ratelimit> + Clone {
        let own = &self.stored().ratelimits;
        let shared = self.identity().map_or(&[][..], |identity| &identity.ratelimits);
        shared.iter().filter(|limit| own.iter().all(|known| known.name != limit.name))
    }
}

/// The view of the key that has this hash, whosever it is.
pub async fn by_hash(app: &App, hash: KeyHash) -> Result<Option<Arc<Cached<View>>>> {
    app.caches
        .views
        .get(&hash, |stamp| async move {
            let Some(row) = key(app, &hash).await? else { return Ok(None) };
            let (view, subjects) = assemble(app, row).await?;
            Ok(Some(Cached::new(view, stamp, subjects)))
        })
        .await
}

async fn key(app: &App, hash: &KeyHash) -> Result<Option<Arc<Cached<StoredKey>>>> {
    app.caches
        .keys
        .get(hash, |stamp| async move {
            let found = app.store.read().await?.key_by_hash(&hash.base64()).await?;
            Ok(found.map(|stored| {
                let subjects = key_subjects(&stored);
                Cached::new(stored, stamp, subjects)
            }))
        })
        .await
}

/// A view of a key that has just been read, and what it was made from.
pub async fn assemble(app: &App, row: Arc<Cached<StoredKey>>) -> Result<(View, Vec<Subject>)> {
    let stored = &row.value;
    let mut subjects = key_subjects(stored);
    let identity = match &stored.key.identity_id {
        None => None,
        Some(id) => {
            subjects.push(Subject::Identity(id.clone()));
            identity(app, stored, id).await?
        }
    };
    let mut roles = Vec::with_capacity(stored.role_ids.len());
    let mut permissions: Vec<_> = stored.permissions.iter().map(|p| p.slug.clone()).collect();
    for id in &stored.role_ids {
        subjects.push(Subject::Role(id.clone()));
        let Some(role) = role(app, stored, id).await? else { continue };
        subjects.extend(role_subjects(&role.value));
        roles.push(role.value.name.clone());
        permissions.extend(role.value.permissions.iter().map(|p| p.slug.clone()));
    }
    roles.sort();
    permissions.sort();
    permissions.dedup();
    Ok((View { row, identity, roles, permissions }, subjects))
}

async fn identity(
    app: &App,
    stored: &StoredKey,
    id: &IdentityId,
) -> Result<Option<Arc<Cached<Identity>>>> {
    let workspace = &stored.key.workspace_id;
    app.caches
        .identities
        .get(id, |stamp| async move {
            let found = app.store.read().await?.identity(workspace, id).await?;
            Ok(found.map(|identity| Cached::new(identity, stamp, [Subject::Identity(id.clone())])))
        })
        .await
}

async fn role(app: &App, stored: &StoredKey, id: &RoleId) -> Result<Option<Arc<Cached<Role>>>> {
    let workspace = &stored.key.workspace_id;
    app.caches
        .roles
        .get(id, |stamp| async move {
            let found = app.store.read().await?.roles(workspace, std::slice::from_ref(id)).await?;
            Ok(found.into_iter().next().map(|role| {
                let subjects = role_subjects(&role);
                Cached::new(role, stamp, subjects)
            }))
        })
        .await
}

fn key_subjects(stored: &StoredKey) -> Vec<Subject> {
    let own = [Subject::Key(stored.key.id.clone()), Subject::Api(stored.key.api_id.clone())];
    let permissions = stored.permissions.iter().map(|p| Subject::Permission(p.id.clone()));
    own.into_iter().chain(permissions).collect()
}

fn role_subjects(role: &Role) -> Vec<Subject> {
    let permissions = role.permissions.iter().map(|p| Subject::Permission(p.id.clone()));
    std::iter::once(Subject::Role(role.id.clone())).chain(permissions).collect()
}
