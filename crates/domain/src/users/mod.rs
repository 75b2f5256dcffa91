//! Users of the dashboard. They sign in with an e-mail and a password or by single sign-on, and are members of
//! workspaces with a role. The first user is created by an invitation link that the server prints when it starts.
//!
//! The permissions of a user in a workspace are [`Grants`], like those of a root key, so every function of the domain
//! checks both in the same way.

mod invitations;
mod members;
mod passwords;
mod sessions;
mod sign_in;
pub mod single_sign_on;

use std::sync::Arc;

pub use invitations::{
    AcceptResult, accept_invitation, create_operator_invitation, create_setup_invitation,
    find_invitation, is_password_allowed,
};
pub use members::{
    get_member, invite, list_invitations, list_members, remove_member, set_member_role,
    withdraw_invitation,
};
pub use passwords::{PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN, PasswordHasher};
pub use sessions::{
    AuthenticatedSession, SESSION_LIFETIME_MS, SessionUse, authenticate_session, change_password,
    end_other_sessions, end_session, is_session_active, list_sessions, sign_out,
};
pub use sign_in::{SignedIn, require_passwords_enabled, sign_in};

use foundation::clock::{Monotonic, Timestamp};
use foundation::error::{Error, ResourceRef, Result};
use foundation::id::{RequestId, WorkspaceId};
use foundation::model::{MemberRole, Membership, User};
use oidc::OidcClient;
use store::Tx;

use crate::audit::{Actor, AuditBatch, AuditEvent, Target};
use crate::caller::{Cached, Caller, ClientInfo, Principal};
use crate::context::Context;
use crate::page::COUNT_MAX;
use crate::permission::{Action, Grants};

/// Signs users in.
pub struct Users {
    pub context: Arc<Context>,
    /// Hashes passwords, with a bound on concurrency.
    password_hasher: PasswordHasher,
    /// The client of the OIDC provider. Absent if single sign-on is not configured.
    pub oidc: Option<OidcClient>,
}

impl Users {
    /// Creates a service; the OIDC provider is not called.
    pub fn new(context: Arc<Context>) -> Result<Self> {
        let oidc = context.settings.oidc.as_ref().map(OidcClient::new).transpose()?;
        let password_hasher = PasswordHasher::new(context.metrics.password_hashes.clone());
        Ok(Self { context, password_hasher, oidc })
    }
}

/// The maximum length of an e-mail address, in bytes.
pub const EMAIL_MAX_BYTES: usize = 254;
/// The target type of a user in the audit log.
const USER_TARGET_TYPE: &str = "user";

/// Returns the permissions of a role. The role is the same for all interfaces and workspaces.
pub fn role_grants(role: MemberRole) -> Grants {
    let all = Action::ALL.iter().chain(Action::USERS_ONLY).copied();
    match role {
        MemberRole::Owner => all.collect(),
        MemberRole::Admin => all.filter(|action| *action != Action::ManageMembers).collect(),
        MemberRole::Viewer => all.filter(|action| is_read_only(*action)).collect(),
    }
}

fn is_read_only(action: Action) -> bool {
    action.action().starts_with("read_") || action == Action::ListOverrides
}

/// Returns the caller for a user in a workspace. A workspace of which the user is not a member is reported as not
/// found.
pub async fn load_caller(
    context: &Context,
    current: &AuthenticatedSession,
    workspace: &WorkspaceId,
    origin: ClientInfo,
) -> Result<(Caller, Membership)> {
    let user = &current.user;
    let found = context.store.read().await?.find_membership(workspace, &user.id).await?;
    let found = found.ok_or_else(|| Error::not_found(ResourceRef::Workspace(workspace.clone())))?;
    if !found.workspace_enabled {
        return Err(Error::WorkspaceDisabled);
    }
    let authority = Principal::from_user(user.clone(), workspace.clone(), role_grants(found.role));
    let authority =
        Arc::new(Cached::new(authority, context.freshness.read_version(Monotonic::now()), []));
    let request = RequestId::new(context.clock.now());
    let caller = Caller {
        principal: authority,
        client: origin,
        idempotency_key: None,
        form_submission: None,
        request_id: request,
        skips_analytics: false,
        undone_entry_id: None,
    };
    Ok((caller, found))
}

/// Lists the memberships of a user, sorted by workspace name.
pub async fn list_memberships(context: &Context, user: &User) -> Result<Vec<Membership>> {
    context.store.read().await?.list_memberships(&user.id).await
}

/// The numbers of resources of a workspace, each counted up to a bound.
#[derive(Debug, Clone, Copy)]
pub struct ResourceCounts {
    pub apis: i64,
    pub keys: i64,
    pub identities: i64,
}

/// Counts the resources of the workspace, each up to [`COUNT_MAX`] plus one.
pub async fn count_resources(context: &Context, caller: &Caller) -> Result<ResourceCounts> {
    for action in [Action::ReadApi, Action::ReadKey, Action::ReadIdentity] {
        caller.require(action)?;
    }
    let max = COUNT_MAX + 1;
    let (apis, keys, identities) =
        context.store.read().await?.count_resources(caller.workspace_id(), max).await?;
    Ok(ResourceCounts { apis, keys, identities })
}

/// Validates an e-mail address and returns it in its stored form: trimmed and in lower case.
fn parse_email(text: &str) -> Result<String> {
    let email = text.trim().to_lowercase();
    let parts = email.split_once('@');
    let is_complete = parts.is_some_and(|(name, host)| {
        !name.is_empty()
            && !host.is_empty()
            && !host.contains('@')
            && email.len() <= EMAIL_MAX_BYTES
    });
    if is_complete && !email.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Ok(email);
    }
    Err(Error::invalid("email", "email must be an e-mail address, such as ada@example.com"))
}

/// Records an action that belongs to no single workspace in the audit log of every workspace of the user.
async fn record_in_all_workspaces(
    tx: &mut Tx,
    user: &User,
    origin: &ClientInfo,
    now: Timestamp,
    event: AuditEvent,
) -> Result<()> {
    for workspace in tx.list_workspace_ids(&user.id).await? {
        let mut entries = AuditBatch::new(Actor::User(user, origin), &workspace, now);
        entries.add(event, &[user_target(user)]);
        entries.write(tx).await?;
    }
    Ok(())
}

fn user_target(user: &User) -> Target<'_> {
    Target::new(USER_TARGET_TYPE, user.id.as_str()).with_name(Some(&user.email))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_may_do_all_and_admin_all_but_manage_members_and_viewer_only_read() {
        for action in Action::ALL.iter().chain(Action::USERS_ONLY) {
            assert!(role_grants(MemberRole::Owner).is_allowed(*action));
            let admin_may = *action != Action::ManageMembers;
            assert_eq!(role_grants(MemberRole::Admin).is_allowed(*action), admin_may);
        }
        let viewer = role_grants(MemberRole::Viewer);
        assert!(viewer.is_allowed(Action::ReadKey) && viewer.is_allowed(Action::ReadRootKey));
        for action in [Action::DecryptKey, Action::VerifyKey, Action::CreateRootKey, Action::Limit]
        {
            assert!(!viewer.is_allowed(action));
        }
    }

    #[test]
    fn email_is_lower_cased_and_rejected_when_incomplete() {
        assert_eq!(parse_email(" Ada@Example.COM ").expect("an e-mail"), "ada@example.com");
        for invalid in ["", "ada", "@", "ada@", "@example.com", "a@b@c", "a b@example.com"] {
            assert!(parse_email(invalid).is_err(), "{invalid}");
        }
    }
}
