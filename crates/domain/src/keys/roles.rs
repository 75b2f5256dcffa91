//! The roles of a key.

use foundation::clock::Timestamp;
use foundation::error::{Refusal, Result};
use foundation::id::{KeyId, RoleId};
use foundation::model::Role;
use store::{StoredKey, Tx};

use super::assignments::{Assignment, AssignmentChange};
use crate::audit::{AuditBatch, AuditEvent, Target};
use crate::bounds::KEY_ROLES_MAX;
use crate::caller::Caller;
use crate::permission::Action;
use crate::rbac::{self, Selector};

impl Assignment for Role {
    type Id = RoleId;

    const ADD: Action = Action::AddRoleToKey;
    const REMOVE: Action = Action::RemoveRoleFromKey;
    const ADDED_EVENT: AuditEvent = AuditEvent::KeyRoleAdded;
    const REMOVED_EVENT: AuditEvent = AuditEvent::KeyRoleRemoved;
    const PER_KEY_MAX: usize = KEY_ROLES_MAX;
    const TOO_MANY: Refusal = Refusal::TooManyRoles(Self::PER_KEY_MAX);

    /// A caller that may update the key needs no further permission to remove or replace its roles.
    fn actions_beside_update(change: AssignmentChange) -> &'static [Action] {
        match change {
            AssignmentChange::Add => &[Action::AddRoleToKey],
            AssignmentChange::Remove | AssignmentChange::Set => &[],
        }
    }

    fn id(&self) -> &RoleId {
        &self.id
    }

    fn to_target(&self) -> Target<'_> {
        rbac::role_target(self)
    }

    async fn resolve(
        tx: &mut Tx,
        caller: &Caller,
        selectors: Vec<Selector>,
        entries: &mut AuditBatch<'_>,
        now: Timestamp,
    ) -> Result<Vec<Self>> {
        rbac::resolve_roles(tx, caller, selectors, entries, now).await
    }

    async fn list_assigned(tx: &mut Tx, caller: &Caller, key: &StoredKey) -> Result<Vec<Self>> {
        tx.list_roles_by_ids(caller.workspace_id(), &key.role_ids).await
    }

    async fn replace(tx: &mut Tx, key: &KeyId, ids: &[RoleId]) -> Result<()> {
        tx.set_key_roles(key, ids).await
    }
}
