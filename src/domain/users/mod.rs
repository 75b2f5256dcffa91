//! People: who uses the dashboard. They sign in with an e-mail and a password, or by single sign-on, belong to
//! workspaces, and may do there what their role says. The first of them comes by a link that the log shows.
//!
//! A person's rights in a workspace are [`Grants`] as a root key's are, so every function of the domain is guarded
//! for both alike.

mod invitations;
mod members;
mod passwords;
mod sessions;
mod sign_in;
pub mod single_sign_on;

use std::sync::Arc;

pub use invitations::{
    AcceptResult, accept, at_start, find_invitation, operator_link, takes_password,
};
pub use members::{invitations, invite, member, members, remove, set_role, withdraw};
pub use passwords::{PASSWORD_MAX, PASSWORD_MIN, PasswordHasher};
pub use sessions::{
    AuthenticatedSession, LIFE_MS, authenticate_session, change_password, end, end_others,
    sessions, sign_out,
};
pub use sign_in::{SignedIn, require_passwords_enabled, sign_in};

use foundation::clock::Timestamp;
use foundation::error::{Error, Result, Subject};
use foundation::id::{RequestId, WorkspaceId};
use foundation::model::{MemberRole, Membership, User};
use store::Tx;

use super::audit::{Actor, AuditBatch, Target};
use super::caller::{Cached, Caller, ClientInfo, Principal};
use super::permission::{Action, Grants};
use crate::app::App;

/// The longest e-mail address there is.
pub const EMAIL_MAX: usize = 254;
/// The kind of thing that a person is in the audit log.
const USER: &str = "user";

/// What a role allows, in every place alike.
pub fn grants(role: MemberRole) -> Grants {
    let all = Action::ALL.iter().chain(Action::OF_PEOPLE).copied();
    match role {
        MemberRole::Owner => all.collect(),
        MemberRole::Admin => all.filter(|action| *action != Action::ManageMembers).collect(),
        MemberRole::Viewer => all.filter(|action| only_reads(*action)).collect(),
    }
}

fn only_reads(action: Action) -> bool {
    action.action().starts_with("read_") || action == Action::ListOverrides
}

/// A person who acts in a workspace. What somebody does not belong to does not exist.
pub async fn caller(
    app: &App,
    known: &AuthenticatedSession,
    workspace: &WorkspaceId,
    origin: ClientInfo,
) -> Result<(Caller, Membership)> {
    let person = &known.person;
    let found = app.store.read().await?.membership(workspace, &person.id).await?;
    let found = found.ok_or_else(|| Error::not_found(Subject::Workspace(workspace.clone())))?;
    if !found.workspace_enabled {
        return Err(Error::WorkspaceDisabled);
    }
    let authority = Principal::of_person(person.clone(), workspace.clone(), grants(found.role));
    let authority = Arc::new(Cached::new(authority, app.freshness.read_version(), []));
    let request = RequestId::new(app.clock.now());
    let caller = Caller {
        authority,
        origin,
        idempotency_key: None,
        request,
        is_unrecorded: false,
        undoes: None,
    };
    Ok((caller, found))
}

/// The workspaces that a person belongs to, by name.
pub async fn memberships(app: &App, person: &User) -> Result<Vec<Membership>> {
    app.store.read().await?.memberships_of(&person.id).await
}

/// How many things a workspace has, each counted up to a bound.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub apis: i64,
    pub keys: i64,
    pub identities: i64,
}

/// Further than this nothing is counted for a page.
pub const SIZE_MAX: i64 = 10_000;

/// How much there is in the workspace.
pub async fn sizes(app: &App, caller: &Caller) -> Result<Sizes> {
    for action in [Action::ReadApi, Action::ReadKey, Action::ReadIdentity] {
        caller.require(action)?;
    }
    let max = SIZE_MAX + 1;
    let (apis, keys, identities) = app.store.read().await?.sizes(caller.workspace(), max).await?;
    Ok(Sizes { apis, keys, identities })
}

/// An e-mail address as it is kept. The error says what is wrong with it.
fn email(text: &str) -> Result<String> {
    let email = text.trim().to_lowercase();
    let parts = email.split_once('@');
    let is_whole = parts.is_some_and(|(name, host)| {
        !name.is_empty() && !host.is_empty() && !host.contains('@') && email.len() <= EMAIL_MAX
    });
    if is_whole && !email.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Ok(email);
    }
    Err(Error::invalid("email", "give an e-mail address, such as ada@example.com"))
}

/// Records what a person does that belongs to no single workspace, in every one of theirs.
async fn record_everywhere(
    tx: &mut Tx,
    person: &User,
    origin: &ClientInfo,
    now: Timestamp,
    event: &'static str,
) -> Result<()> {
    for membership in tx.memberships_of(&person.id).await? {
        let mut entries =
            AuditBatch::new(Actor::Person(person, origin), &membership.workspace_id, now);
        entries.add(event, &[target(person)]);
        entries.write(tx).await?;
    }
    Ok(())
}

fn target(person: &User) -> Target<'_> {
    Target::new(USER, person.id.as_str()).named(Some(&person.email))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_may_all_an_admin_all_but_manage_members_and_a_viewer_only_look() {
        for action in Action::ALL.iter().chain(Action::OF_PEOPLE) {
            assert!(grants(MemberRole::Owner).allow(*action));
            let admin_may = *action != Action::ManageMembers;
            assert_eq!(grants(MemberRole::Admin).allow(*action), admin_may);
        }
        let viewer = grants(MemberRole::Viewer);
        assert!(viewer.allow(Action::ReadKey) && viewer.allow(Action::ReadRootKey));
        for action in [Action::DecryptKey, Action::VerifyKey, Action::CreateRootKey, Action::Limit]
        {
            assert!(!viewer.allow(action));
        }
    }

    #[test]
    fn an_email_is_kept_in_lower_case_and_must_have_two_sides() {
        assert_eq!(email(" Ada@Example.COM ").expect("an e-mail"), "ada@example.com");
        for wrong in ["", "ada", "@", "ada@", "@example.com", "a@b@c", "a b@example.com"] {
            assert!(email(wrong).is_err(), "{wrong}");
        }
    }
}
