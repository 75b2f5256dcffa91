//! What every page of somebody who is signed in has around it.

use foundation::model::Membership;

use super::assets::{Assets, assets};
use super::failure::Failure;
use super::page_request::{PageRequest, WorkspaceRequest};
use crate::domain::permission::Action;
use crate::domain::users;

/// Which entry of the navigation a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Overview,
    Apis,
    Keys,
    Identities,
    Permissions,
    Ratelimits,
    Analytics,
    RootKeys,
    Imports,
    Members,
    Audit,
    Account,
}

/// The frame of a page.
pub struct Layout {
    pub assets: Assets,
    pub title: &'static str,
    pub csrf: String,
    /// Absent: nobody is signed in.
    pub email: Option<String>,
    /// Absent on pages that belong to no workspace, where there is none.
    pub nav: Option<Nav>,
    /// What has just been done.
    pub told: Option<&'static str>,
}

/// The navigation of a workspace.
pub struct Nav {
    pub here: Membership,
    pub others: Vec<Membership>,
    pub entries: Vec<Entry>,
}

pub struct Entry {
    pub path: String,
    pub label: &'static str,
    /// Whether the page that is shown belongs to it, which screen readers then say.
    pub is_here: bool,
}

impl Nav {
    fn new(here: Membership, others: Vec<Membership>, section: Section) -> Self {
        let base = format!("/dashboard/{}", here.workspace_id);
        let entry = |of, label, path| Entry { path, label, is_here: of == section };
        let entries = vec![
            entry(Section::Overview, "Overview", base.clone()),
            entry(Section::Apis, "APIs", format!("{base}/apis")),
            entry(Section::Keys, "Keys", format!("{base}/keys")),
            entry(Section::Identities, "Identities", format!("{base}/identities")),
            entry(Section::Permissions, "Permissions", format!("{base}/permissions")),
            entry(Section::Ratelimits, "Rate limits", format!("{base}/ratelimits")),
            entry(Section::Analytics, "Analytics", format!("{base}/analytics")),
            entry(Section::RootKeys, "Root keys", format!("{base}/root-keys")),
            entry(Section::Imports, "Imports", format!("{base}/imports")),
            entry(Section::Members, "Members", format!("{base}/members")),
            entry(Section::Audit, "Audit log", format!("{base}/audit")),
            entry(Section::Account, "Account", "/dashboard/account".to_owned()),
        ];
        Self { here, others, entries }
    }
}

impl Layout {
    /// Of a page of a workspace.
    pub async fn of(
        asked: &WorkspaceRequest,
        section: Section,
        title: &'static str,
    ) -> Result<Self, Failure> {
        let memberships = users::memberships(&asked.visit.app, &asked.known.person).await?;
        let others = memberships.into_iter();
        let others = others.filter(|other| other.workspace_id != asked.membership.workspace_id);
        let nav = Nav::new(asked.membership.clone(), others.collect(), section);
        Ok(Self { nav: Some(nav), ..Self::bare(&asked.visit, title) })
    }

    /// Of the page of a person's own account, in whichever workspace comes first.
    pub async fn of_account(visit: &PageRequest, title: &'static str) -> Result<Self, Failure> {
        let mut memberships =
            users::memberships(&visit.app, &visit.signed_in()?.person).await?.into_iter();
        let nav =
            memberships.next().map(|here| Nav::new(here, memberships.collect(), Section::Account));
        Ok(Self { nav, ..Self::bare(visit, title) })
    }

    /// Of a page outside of any workspace.
    pub fn bare(visit: &PageRequest, title: &'static str) -> Self {
        Self {
            assets: assets(),
            title,
            csrf: visit.csrf.clone(),
            email: visit.known.as_ref().map(|known| known.person.email.clone()),
            nav: None,
            told: notice_text(visit.query.text("notice")),
        }
    }
}

/// Only these sentences can be told, so that no link makes a page say something else.
fn notice_text(word: &str) -> Option<&'static str> {
    Some(match word {
        "revoked" => "The root key is revoked. Nothing accepts it any more.",
        "password" => "Your password is changed, and your other sessions are ended.",
        "linked" => "Your account is linked. Sign in either way from now on.",
        "unlinked" => "Your account is not linked any more. Sign in with your password.",
        "session" => "The session is ended.",
        "others" => "All your other sessions are ended.",
        "role" => "The role is changed.",
        "removed" => "The member is removed.",
        "withdrawn" => "The invitation is withdrawn.",
        "api-created" => "The API is made. Now make its first key.",
        "api-updated" => "The settings are saved.",
        "api-deleted" => "The API is deleted. None of its keys works any more.",
        "key-updated" => "The key is changed.",
        "key-unchanged" => "Nothing was changed.",
        "key-enabled" => "The key is enabled.",
        "key-disabled" => "The key is disabled. It is refused until it is enabled again.",
        "key-deleted" => "The key is deleted. Nothing accepts it any more.",
        "key-credits" => "The credits are changed.",
        "identity-created" => "The identity is made. Give it to keys by its externalId.",
        "identity-updated" => "The identity is changed, for all its keys at once.",
        "identity-deleted" => "The identity is deleted. Its keys go on without it.",
        "permission-created" => "The permission is made. Give it to keys, or to roles.",
        "permission-deleted" => "The permission is deleted. No key and no role has it any more.",
        "role-created" => "The role is made. Give it to keys.",
        "role-updated" => "The role has these permissions from now on, and so have its keys.",
        "role-deleted" => "The role is deleted. No key has it any more.",
        "namespace-created" => "The namespace is made. Checks can count in it.",
        "namespace-updated" => "The namespace is changed. It holds at once.",
        "namespace-deleted" => "The namespace is deleted. Checks in it are refused.",
        "override-updated" => "The override is set. Checks count with it from now on.",
        "override-deleted" => "The override is deleted. Checks no longer count with it.",
        "undone" => "It is undone. The audit log tells that too.",
        "import-created" => "The import is made. Now take in keys.",
        "joined" => "Welcome. You belong to this workspace now.",
        _ => return None,
    })
}

/// Whether somebody may do something, for pages that leave out what would be refused.
pub fn may(asked: &WorkspaceRequest, action: Action) -> bool {
    asked.caller.may(action)
}
