//! The permissions that a root key needs to add permissions and roles to a key, or to remove them.

use foundation::error::Result;
use foundation::model::Key;

use crate::caller::Caller;
use crate::permission::Action;
use crate::rbac::difference;

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

/// The permissions that one call requires.
pub struct RequiredActions<'a> {
    requires_key_update: bool,
    actions: &'a [Action],
    /// The actions to add and to remove, required as far as something is added or removed.
    assignment_actions: Option<(Action, Action)>,
}

impl<'a> RequiredActions<'a> {
    pub fn new(access: AssignmentAccess, actions: &'a [Action]) -> Self {
        Self {
            requires_key_update: access == AssignmentAccess::KeyAndAssignments,
            actions,
            assignment_actions: None,
        }
    }

    /// Creates the requirements of a call that replaces all assignments, with the additions and removals this takes.
    pub fn for_replacement(
        access: AssignmentAccess,
        all: &'a [Action],
        add: Action,
        remove: Action,
    ) -> Self {
        match access {
            AssignmentAccess::KeyAndAssignments => Self::new(access, all),
            AssignmentAccess::AssignmentsOnly => Self {
                requires_key_update: false,
                actions: &[],
                assignment_actions: Some((add, remove)),
            },
        }
    }

    pub fn require_actions(&self, caller: &Caller, key: &Key) -> Result<()> {
        if self.requires_key_update {
            caller.require_on(Action::UpdateKey, &key.api_id)?;
        }
        self.actions.iter().try_for_each(|action| caller.require(*action))
    }

    pub fn require_assignment_actions<T, I: PartialEq>(
        &self,
        caller: &Caller,
        before: &[T],
        after: &[T],
        id: impl Fn(&T) -> &I,
    ) -> Result<()> {
        let Some((add, remove)) = self.assignment_actions else { return Ok(()) };
        if !difference(after, before, &id).is_empty() {
            caller.require(add)?;
        }
        if !difference(before, after, &id).is_empty() {
            caller.require(remove)?;
        }
        Ok(())
    }
}
