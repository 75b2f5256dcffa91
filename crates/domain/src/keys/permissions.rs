//! The direct permissions of a key.

use foundation::clock::Timestamp;
use foundation::error::{Refusal, Result};
use foundation::id::{KeyId, PermissionId};
use foundation::model::Permission;
use store::{StoredKey, Tx};

use super::assignments::{Assignment, AssignmentChange};
use crate::audit::{AuditBatch, AuditEvent, Target};
use crate::bounds::PERMISSIONS_MAX;
use crate::caller::Caller;
use crate::permission::Action;
use crate::rbac::{self, Selector};

impl Assignment for Permission {
    type Id = PermissionId;

    const ADD: Action = Action::AddPermissionToKey;
    const REMOVE: Action = Action::RemovePermissionFromKey;
    const ADDED_EVENT: AuditEvent = AuditEvent::KeyPermissionAdded;
    const REMOVED_EVENT: AuditEvent = AuditEvent::KeyPermissionRemoved;
    const PER_KEY_MAX: usize = PERMISSIONS_MAX;
    const TOO_MANY: Refusal = Refusal::TooManyPermissions(Self::PER_KEY_MAX);

    fn actions_beside_update(change: AssignmentChange) -> &'static [Action] {
        match change {
            AssignmentChange::Add => &[Action::AddPermissionToKey],
            AssignmentChange::Remove => &[Action::RemovePermissionFromKey],
            AssignmentChange::Set => &[Action::AddPermissionToKey, Action::RemovePermissionFromKey],
        }
    }

    fn id(&self) -> &PermissionId {
        &self.id
    }

    fn to_target(&self) -> Target<'_> {
        rbac::permission_target(self)
    }

    async fn resolve(
        tx: &mut Tx,
        caller: &Caller,
        selectors: Vec<Selector>,
        entries: &mut AuditBatch<'_>,
        now: Timestamp,
    ) -> Result<Vec<Self>> {
        rbac::resolve_permissions(tx, caller, selectors, entries, now).await
    }

    async fn list_assigned(_: &mut Tx, _: &Caller, key: &StoredKey) -> Result<Vec<Self>> {
        Ok(key.permissions.clone())
    }

    async fn replace(tx: &mut Tx, key: &KeyId, ids: &[PermissionId]) -> Result<()> {
        tx.set_key_permissions(key, ids).await
    }
}
