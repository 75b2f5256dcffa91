//! What a root key must hold to give a key permissions and roles, or to take them.

use super::super::caller::Caller;
use super::super::permission::Action;
use super::super::rbac::beyond;
use crate::error::Result;
use crate::model::Key;

/// Which rights are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// To change the key, and to do all that the call may come to.
    KeyToo,
    /// To do what the call comes to.
    LinksOnly,
}

/// What came of a change.
#[derive(Debug)]
pub struct Changed<T> {
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
pub struct Needed<'a> {
    key_too: bool,
    actions: &'a [Action],
    /// To give and to take, as far as something is given or taken.
    links: Option<(Action, Action)>,
}

impl<'a> Needed<'a> {
    pub fn new(rights: Rights, actions: &'a [Action]) -> Self {
        Self { key_too: rights == Rights::KeyToo, actions, links: None }
    }

    /// Of a call that gives and takes what it must.
    pub fn to_set(rights: Rights, all: &'a [Action], give: Action, take: Action) -> Self {
        match rights {
            Rights::KeyToo => Self::new(rights, all),
            Rights::LinksOnly => Self { key_too: false, actions: &[], links: Some((give, take)) },
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
        if !beyond(after, before, &id).is_empty() {
            caller.require(give)?;
        }
        if !beyond(before, after, &id).is_empty() {
            caller.require(take)?;
        }
        Ok(())
    }
}
