//! What a root key must hold to give a key permissions and roles, or to take them.

use foundation::error::Result;
use foundation::model::Key;

use super::super::caller::Caller;
use super::super::permission::Action;
use super::super::rbac::difference;

/// Which rights are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssignmentAccess {
    /// To change the key, and to do all that the call may come to.
    KeyToo,
    /// To do what the call comes to.
    LinksOnly,
}

/// What came of a change.
#[derive(Debug)]
pub struct AssignmentResult<T> {
    /// What the request named.
    pub picked: Vec<T>,
    /// All that the key has then.
    pub after: Vec<T>,
}

/// Fails unless the caller may give keys permissions and roles, as far as something is given.
pub fn require_to_give(caller: &Caller, permissions: bool, roles: bool) -> Result<()> {
    if permissions {
        caller.require(Action::AddPermissionToKey)?;
    }
    if roles {
        caller.require(Action::AddRoleToKey)?;
    }
    Ok(())
}

/// What one call asks for.
pub struct RequiredActions<'a> {
    key_too: bool,
    actions: &'a [Action],
    /// To give and to take, as far as something is given or taken.
    links: Option<(Action, Action)>,
}

impl<'a> RequiredActions<'a> {
    pub fn new(rights: AssignmentAccess, actions: &'a [Action]) -> Self {
        Self { key_too: rights == AssignmentAccess::KeyToo, actions, links: None }
    }

    /// Of a call that gives and takes what it must.
    pub fn to_set(rights: AssignmentAccess, all: &'a [Action], give: Action, take: Action) -> Self {
        match rights {
            AssignmentAccess::KeyToo => Self::new(rights, all),
            AssignmentAccess::LinksOnly => {
                Self { key_too: false, actions: &[], links: Some((give, take)) }
            }
        }
    }

    pub fn check(&self, caller: &Caller, key: &Key) -> Result<()> {
        if self.key_too {
            caller.require_on(Action::UpdateKey, &key.api_id)?;
        }
        self.actions.iter().try_for_each(|action| caller.require(*action))
    }

    pub fn check_links<T, I: PartialEq>(
        &self,
        caller: &Caller,
        before: &[T],
        after: &[T],
        id: impl Fn(&T) -> &I,
    ) -> Result<()> {
        let Some((give, take)) = self.links else { return Ok(()) };
        if !difference(after, before, &id).is_empty() {
            caller.require(give)?;
        }
        if !difference(before, after, &id).is_empty() {
            caller.require(take)?;
        }
        Ok(())
    }
}
