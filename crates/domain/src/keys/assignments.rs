//! Changing the assignments of a key: its direct permissions and its roles.

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, Result};
use foundation::id::KeyId;
use foundation::model::Key;
use store::{StoredKey, Tx, freshness};

use super::{audit_target, lock_existing};
use crate::audit::{AuditBatch, AuditEvent, Target};
use crate::caller::Caller;
use crate::context::Context;
use crate::permission::Action;
use crate::rbac::{Selector, difference};

/// A permission or role, and how keys have it.
pub trait Assignment: Clone + Send + Sync {
    type Id: Clone + PartialEq;

    /// The action that adds an item to a key.
    const ADD: Action;
    /// The action that removes an item from a key.
    const REMOVE: Action;
    /// The audit event of an addition.
    const ADDED_EVENT: AuditEvent;
    /// The audit event of a removal.
    const REMOVED_EVENT: AuditEvent;
    /// The maximum number of items per key. The undo of a deletion may exceed it.
    const PER_KEY_MAX: usize;
    /// The reason why a change that exceeds the maximum is rejected.
    const TOO_MANY: Refusal;

    /// Returns the actions that a change requires besides the update of the key.
    fn actions_beside_update(change: AssignmentChange) -> &'static [Action];

    fn id(&self) -> &Self::Id;

    /// Returns the item as an audit target.
    fn to_target(&self) -> Target<'_>;

    /// Returns the selected items, sorted and without duplicates, and locks them against deletion until the transaction
    /// ends. Missing ones are created according to their policy.
    fn resolve(
        tx: &mut Tx,
        caller: &Caller,
        selectors: Vec<Selector>,
        entries: &mut AuditBatch<'_>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Self>>> + Send;

    /// Returns the items that a key has, sorted.
    fn list_assigned(
        tx: &mut Tx,
        caller: &Caller,
        key: &StoredKey,
    ) -> impl Future<Output = Result<Vec<Self>>> + Send;

    /// Replaces the items that a key has, in the database.
    fn replace(
        tx: &mut Tx,
        key: &KeyId,
        ids: &[Self::Id],
    ) -> impl Future<Output = Result<()>> + Send;
}

/// How a change combines the selected items with those that the key has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssignmentChange {
    Add,
    /// Items that the key does not have are ignored.
    Remove,
    /// Replaces all items.
    Set,
}

impl AssignmentChange {
    /// Returns the items after the change: the previous ones, then the new ones.
    fn apply<T: Assignment>(self, before: &[T], selected: &[T]) -> Vec<T> {
        match self {
            Self::Add => {
                before.iter().chain(difference(selected, before, T::id)).cloned().collect()
            }
            Self::Remove => difference(before, selected, T::id).into_iter().cloned().collect(),
            Self::Set => selected.to_vec(),
        }
    }
}

/// The permissions that a call requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssignmentAccess {
    /// To update the key, and to make every change that the call allows.
    KeyAndAssignments,
    /// To make the changes that the call actually makes.
    AssignmentsOnly,
}

/// The result of an assignment.
#[derive(Debug)]
pub struct AssignmentResult<T> {
    /// The items that the request named.
    pub selected: Vec<T>,
    /// All items that the key has afterwards.
    pub after: Vec<T>,
}

/// Changes the direct permissions or the roles of a key. Checks that the key exists before it checks the caller's
/// permissions.
pub async fn change_assignments<T: Assignment>(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    change: AssignmentChange,
    selectors: Vec<Selector>,
    access: AssignmentAccess,
) -> Result<AssignmentResult<T>> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let stored = lock_existing(&mut tx, caller, id).await?;
    require_actions::<T>(caller, &stored.key, change, access)?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let selected = T::resolve(&mut tx, caller, selectors, &mut entries, now).await?;
    let before = T::list_assigned(&mut tx, caller, &stored).await?;
    let after = change.apply(&before, &selected);
    // A key can have more by an undo, and must be able to lose them one by one.
    if after.len() > T::PER_KEY_MAX && after.len() > before.len() {
        return Err(Error::PreconditionFailed(T::TOO_MANY));
    }
    if access == AssignmentAccess::AssignmentsOnly || context.settings.security.strict_grants {
        require_changes(caller, &before, &after)?;
    }
    set_assigned(&mut tx, &mut entries, &stored.key, &before, &after).await?;
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Key(id.clone()));
    context.commit(tx).await?;
    Ok(AssignmentResult { selected, after })
}

/// Fails unless the caller may make a change, whatever the key has. [`require_changes`] checks replacements without the
/// permission to update the key.
fn require_actions<T: Assignment>(
    caller: &Caller,
    key: &Key,
    change: AssignmentChange,
    access: AssignmentAccess,
) -> Result<()> {
    match (access, change) {
        (AssignmentAccess::KeyAndAssignments, _) => {
            caller.require_on(Action::UpdateKey, &key.api_id)?;
            T::actions_beside_update(change).iter().try_for_each(|action| caller.require(*action))
        }
        (AssignmentAccess::AssignmentsOnly, AssignmentChange::Add) => caller.require(T::ADD),
        (AssignmentAccess::AssignmentsOnly, AssignmentChange::Remove) => caller.require(T::REMOVE),
        (AssignmentAccess::AssignmentsOnly, AssignmentChange::Set) => Ok(()),
    }
}

/// Fails unless the caller may make the additions and removals between two states of a key.
pub fn require_changes<T: Assignment>(caller: &Caller, before: &[T], after: &[T]) -> Result<()> {
    if !difference(after, before, T::id).is_empty() {
        caller.require(T::ADD)?;
    }
    if !difference(before, after, T::id).is_empty() {
        caller.require(T::REMOVE)?;
    }
    Ok(())
}

/// Fails unless the caller may add permissions or roles to keys, as far as the flags say that some are added.
pub fn require_assignable(caller: &Caller, permissions: bool, roles: bool) -> Result<()> {
    if permissions {
        caller.require(Action::AddPermissionToKey)?;
    }
    if roles {
        caller.require(Action::AddRoleToKey)?;
    }
    Ok(())
}

/// Sets the direct permissions or the roles of a key to `after`, and records the changes in the audit log.
pub async fn set_assigned<T: Assignment>(
    tx: &mut Tx,
    entries: &mut AuditBatch<'_>,
    key: &Key,
    before: &[T],
    after: &[T],
) -> Result<()> {
    for added in difference(after, before, T::id) {
        entries.add(T::ADDED_EVENT, &[audit_target(key), added.to_target()]);
    }
    for removed in difference(before, after, T::id) {
        entries.add(T::REMOVED_EVENT, &[audit_target(key), removed.to_target()]);
    }
    let ids: Vec<_> = after.iter().map(|item| item.id().clone()).collect();
    T::replace(tx, &key.id, &ids).await
}
