//! Keys: creation, lookup, changes, deletion and verification.

mod assignment_access;
mod audit_meta;
mod create;
mod delete;
pub mod details;
mod get;
mod import;
mod list;
mod list_by_identity;
mod metering;
mod migrate;
mod open_verification;
pub mod permissions;
mod reason;
mod references;
mod reroll;
mod resolved;
mod restore;
pub mod roles;
mod snapshot;
mod update;
mod update_credits;
mod verify;

pub use assignment_access::AssignmentAccess;
pub use create::{IssuedKey, NewCredits, NewKey, NewRatelimit, create};
pub use delete::{Deletion, delete};
pub use get::{DecryptMode, FoundKey, get, whoami};
pub use import::{DuplicatePolicy, KeyImport, import};
pub use limiter::{GROUP_WINDOW_MAX_MS as AD_HOC_DURATION_MAX_MS, WindowStatus};
pub use list::{KeyFilter as WantedKeys, KeyOwner, count, list};
pub use list_by_identity::{count_by_identity, list_by_identity};
pub use metering::IdleRefill;
pub use migrate::{ImportRejection, MigrationResult, migrate};
pub use references::ImportedKeyFields;
pub use reroll::reroll;
pub use resolved::{ResolvedKey, ResolvedLimit};
pub use restore::restore;
pub use snapshot::{change_from_snapshot, limits_snapshot};
pub use update::{AssignmentPolicy, CreditsChange, KeyChange, RatelimitsChange, update};
pub use update_credits::{CreditsUpdate, UpdatedAtPolicy, update_credits};
pub use verify::{
    EvaluatedLimit, LimitSource, RequestedLimit, VerificationCode, VerifyRequest, VerifyResult,
    verify, verify_unauthenticated,
};

use foundation::error::{Error, ResourceRef, Result};
use foundation::id::{KeyId, RatelimitId};
use foundation::model::{Key, Permission, Ratelimit, Role};
use store::{StoredKey, Tx};

use super::audit::{AuditBatch, Target};
use super::caller::Caller;
use super::rbac;

/// A change of an optional field: keep, clear or set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Patch<T> {
    #[default]
    Keep,
    Clear,
    Set(T),
}

impl<T> Patch<T> {
    /// Applies the change to a field.
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

/// Returns a key of the caller's workspace, whatever the caller may do with it, and locks it until the transaction
/// ends.
async fn lock_existing(tx: &mut Tx, caller: &Caller, id: &KeyId) -> Result<StoredKey> {
    tx.lock_key(caller.workspace_id(), id)
        .await?
        .ok_or_else(|| Error::not_found(ResourceRef::Key(id.clone())))
}

/// Converts limits for storage. If names repeat, the last limit counts.
pub fn to_ratelimits(new: Vec<NewRatelimit>) -> Vec<Ratelimit> {
    let mut limits: Vec<Ratelimit> = Vec::with_capacity(new.len());
    for limit in new {
        limits.retain(|known| known.name != limit.name);
        limits.push(Ratelimit {
            id: RatelimitId::random(),
            name: limit.name,
            limit: limit.limit,
            duration_ms: limit.duration_ms,
            auto_apply: limit.auto_apply,
            is_approximate: limit.is_async,
        });
    }
    limits
}

fn audit_target(key: &Key) -> Target<'_> {
    Target::new("key", key.id.as_str()).with_name(key.name.as_deref())
}

/// Sets the direct permissions of a key to `after`, and records the changes in the audit log.
async fn set_permissions(
    tx: &mut Tx,
    entries: &mut AuditBatch<'_>,
    key: &Key,
    before: &[Permission],
    after: &[Permission],
) -> Result<()> {
    for permission in rbac::difference(after, before, |permission| &permission.id) {
        let targets = [audit_target(key), rbac::permission_target(permission)];
        entries.add("authorization.connect_permission_and_key", &targets);
    }
    for permission in rbac::difference(before, after, |permission| &permission.id) {
        let targets = [audit_target(key), rbac::permission_target(permission)];
        entries.add("authorization.disconnect_permission_and_key", &targets);
    }
    let ids: Vec<_> = after.iter().map(|permission| permission.id.clone()).collect();
    tx.set_key_permissions(&key.id, &ids).await
}

/// Sets the roles of a key to `after`, and records the changes in the audit log.
async fn set_roles(
    tx: &mut Tx,
    entries: &mut AuditBatch<'_>,
    key: &Key,
    before: &[Role],
    after: &[Role],
) -> Result<()> {
    for role in rbac::difference(after, before, |role| &role.id) {
        entries.add(
            "authorization.connect_role_and_key",
            &[audit_target(key), rbac::role_target(role)],
        );
    }
    for role in rbac::difference(before, after, |role| &role.id) {
        let targets = [audit_target(key), rbac::role_target(role)];
        entries.add("authorization.disconnect_role_and_key", &targets);
    }
    let ids: Vec<_> = after.iter().map(|role| role.id.clone()).collect();
    tx.set_key_roles(&key.id, &ids).await
}
