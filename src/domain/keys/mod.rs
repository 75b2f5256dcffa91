//! Keys: issuing, finding, changing, deleting and verifying them.

mod create;
mod delete;
mod find;
mod update;
mod update_credits;
mod verify;
mod view;

pub use crate::limiter::Standing;
pub use create::{IssuedKey, NewCredits, NewKey, NewRatelimit, create};
pub use delete::{Deletion, delete};
pub use find::{Found, get, whoami};
pub use update::{CreditsChange, KeyChange, update};
pub use update_credits::{CreditsUpdate, update_credits};
pub use verify::{Checked, Code, Verification, Verified, Wanted, WantedLimit, verify};
pub use view::{Limit, View};

use super::audit::{self, Actor, Target};
use super::caller::Caller;
use crate::clock::Timestamp;
use crate::error::{Error, Result, Subject};
use crate::id::{KeyId, RatelimitId};
use crate::model::{Key, Permission, Ratelimit, Role};
use crate::store::{StoredKey, Tx};

/// A value of a field that may be left alone, cleared or set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Patch<T> {
    #[default]
    Keep,
    Clear,
    Set(T),
}

impl<T> Patch<T> {
    /// The field after the patch.
    pub fn apply(self, field: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *field = None,
            Self::Set(value) => *field = Some(value),
        }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Patch<U> {
        match self {
            Self::Keep => Patch::Keep,
            Self::Clear => Patch::Clear,
            Self::Set(value) => Patch::Set(f(value)),
        }
    }
}

/// A key of the caller's workspace, whether or not it may do anything with it; nobody else changes
/// it until the transaction ends.
async fn existing(tx: &mut Tx, caller: &Caller, id: &KeyId) -> Result<StoredKey> {
    tx.lock_key(caller.workspace(), id)
        .await?
        .ok_or_else(|| Error::not_found(Subject::Key(id.clone())))
}

/// Limits as they are stored; of two with one name the last counts.
fn ratelimits(new: Vec<NewRatelimit>) -> Vec<Ratelimit> {
    let mut limits: Vec<Ratelimit> = Vec::with_capacity(new.len());
    for limit in new {
        limits.retain(|known| known.name != limit.name);
        limits.push(Ratelimit {
            id: RatelimitId::random(),
            name: limit.name,
            limit: limit.limit,
            duration_ms: limit.duration_ms,
            auto_apply: limit.auto_apply,
        });
    }
    limits
}

fn target(key: &Key) -> Target<'_> {
    Target::new("key", key.id.as_str()).named(key.name.as_deref())
}

async fn record(
    tx: &mut Tx,
    caller: &Caller,
    event: &'static str,
    targets: &[Target<'_>],
    now: Timestamp,
) -> Result<()> {
    audit::record(tx, Actor::RootKey(caller), caller.workspace(), now, event, targets).await
}

/// Makes these the permissions of a key, and records it.
async fn connect_permissions(
    tx: &mut Tx,
    caller: &Caller,
    key: &Key,
    permissions: &[Permission],
    now: Timestamp,
) -> Result<()> {
    let ids: Vec<_> = permissions.iter().map(|permission| permission.id.clone()).collect();
    tx.set_key_permissions(&key.id, &ids).await?;
    for permission in permissions {
        let targets = [target(key), super::rbac::permission_target(permission)];
        record(tx, caller, "authorization.connect_permission_and_key", &targets, now).await?;
    }
    Ok(())
}

/// Makes these the roles of a key, and records it.
async fn connect_roles(
    tx: &mut Tx,
    caller: &Caller,
    key: &Key,
    roles: &[Role],
    now: Timestamp,
) -> Result<()> {
    let ids: Vec<_> = roles.iter().map(|role| role.id.clone()).collect();
    tx.set_key_roles(&key.id, &ids).await?;
    for role in roles {
        let role = Target::new("role", role.id.as_str()).named(Some(&role.name));
        let event = "authorization.connect_role_and_key";
        record(tx, caller, event, &[target(key), role], now).await?;
    }
    Ok(())
}
