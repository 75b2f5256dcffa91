//! Single sign-on: users sign in through an OpenID Connect provider.
//!
//! A user is identified by issuer and `sub`, and by nothing else. The e-mail is trusted once, for a new account. That
//! an account with the e-mail of the claims exists proves nothing: there are providers that let users claim any
//! address. See docs/decisions/0013.

mod matching;

use foundation::clock::Timestamp;
use foundation::config::OidcSettings;
use foundation::error::{Error, Refusal, Result};
use foundation::id::{UserId, WorkspaceId};
use foundation::model::{Invitation, User};
use oidc::OidcClient;

use super::invitations::{add_member, join_workspace, lock_user_by_email, redeem, resets_account};
use super::sessions::AuthenticatedSession;
use super::sign_in::{SignedIn, consume_sso_attempt, create_session};
use super::{parse_email, record_in_all_workspaces};
use crate::audit::AuditEvent;
use crate::caller::ClientInfo;
use crate::context::Context;
use crate::root_keys::default_workspace;
use crate::users::Users;
pub use matching::SsoRejection;
use matching::{EmailMatch, SsoMatch, match_claims};
pub use oidc::{AuthorizationRequest, VerifiedClaims};
use store::Tx;

/// The path to which the provider redirects users.
pub const CALLBACK_PATH: &str = "/dashboard/login/oidc/callback";

/// The purpose of an authorization request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignInPurpose {
    SignIn,
    /// Accept the invitation with this token.
    Join(String),
    /// Link the account of the signed-in user to the provider.
    Link,
}

/// The query parameters with which the provider redirects the browser to the callback.
#[derive(Debug, Clone, Copy)]
pub struct CallbackParams<'a> {
    pub state: &'a str,
    pub code: &'a str,
    /// Empty if there is a code.
    pub error: &'a str,
    /// The issuer identifier of the response (`iss`); empty if the provider does not send it.
    pub issuer: &'a str,
}

/// The result of [`handle_callback`].
#[derive(Debug)]
pub enum SsoResult {
    /// The user is signed in. With the workspace that the user has just joined by an invitation.
    SignedIn(SignedIn, Option<WorkspaceId>),
    /// The account of the signed-in user is linked to the provider.
    Linked,
    Rejected(SsoRejection),
}

/// Returns the provider and its settings, or [`Error::PathNotFound`] if single sign-on is not configured.
fn require_configured(users: &Users) -> Result<(&OidcClient, &OidcSettings)> {
    users.oidc.as_ref().zip(users.context.settings.oidc.as_ref()).ok_or(Error::PathNotFound)
}

fn callback_url(context: &Context) -> String {
    format!("{}{CALLBACK_PATH}", context.settings.public_url)
}

/// Returns the URL of the provider to which the browser is redirected. Changes nothing.
pub async fn sign_in_url(users: &Users, request: &AuthorizationRequest) -> Result<String> {
    let (provider, _) = require_configured(users)?;
    provider.authorization_url(request, &callback_url(&users.context)).await
}

/// Handles the callback of the provider. `request`: the authorization request and its purpose, from the cookie of the
/// browser, if it has one.
pub async fn handle_callback(
    users: &Users,
    request: Option<(AuthorizationRequest, SignInPurpose)>,
    params: CallbackParams<'_>,
    current: Option<&AuthenticatedSession>,
    origin: &ClientInfo,
) -> Result<SsoResult> {
    let (provider, oidc) = require_configured(users)?;
    let not_begun =
        || SsoResult::Rejected(SsoRejection::NotStarted(users.context.settings.public_url.clone()));
    let is_of_issuer = params.issuer.is_empty() || params.issuer == oidc.issuer;
    let request =
        request.filter(|(request, _)| is_of_issuer && request.matches_state(params.state));
    let Some((request, purpose)) = request else { return Ok(not_begun()) };
    consume_sso_attempt(&users.context, origin).await?;
    if params.code.is_empty() {
        let error = params.error.chars().take(100).collect();
        return Ok(SsoResult::Rejected(SsoRejection::Denied(error, oidc.name.clone())));
    }
    let now = users.context.clock.now();
    match provider.exchange_code(params.code, &request, &callback_url(&users.context), now).await? {
        Some(claims) => sign_in_with_claims(users, &claims, &purpose, current, origin).await,
        None => Ok(not_begun()),
    }
}

/// Signs in the user of verified claims, accepts the invitation, or links the account, if the policy allows it.
pub async fn sign_in_with_claims(
    users: &Users,
    claims: &VerifiedClaims,
    purpose: &SignInPurpose,
    current: Option<&AuthenticatedSession>,
    origin: &ClientInfo,
) -> Result<SsoResult> {
    let (_, oidc) = require_configured(users)?;
    let now = users.context.clock.now();
    let mut tx = users.context.store.begin().await?;
    // Serialized: if two requests create an account for the same claims, the second finds that of the first.
    tx.lock_members(&default_workspace()).await?;
    let linked_user = tx.find_user_by_login(&claims.issuer, &claims.subject).await?;
    if *purpose == SignInPurpose::Link {
        let Some(current) = current else {
            return Ok(SsoResult::Rejected(SsoRejection::SessionEnded));
        };
        return link_account(&users.context, tx, claims, linked_user, current, origin, now).await;
    }
    let invitation = match purpose {
        SignInPurpose::Join(token) => match redeem(&mut tx, token, now).await? {
            Some(invitation) => Some(invitation),
            None => return Ok(SsoResult::Rejected(SsoRejection::InvalidInvitation)),
        },
        SignInPurpose::SignIn | SignInPurpose::Link => None,
    };
    let linked_user = match linked_user {
        Some(user) => lock_linked_user(&mut tx, claims, &user.id).await?,
        None => None,
    };
    let email_match = match claims.email.as_deref().map(parse_email) {
        Some(Ok(email)) => {
            find_email_match(&mut tx, &email, &claims.issuer, invitation.as_ref()).await?
        }
        Some(Err(_)) | None => None,
    };
    let matched = match match_claims(oidc, claims, linked_user, email_match, invitation.as_ref()) {
        // Otherwise there would be users without an owner: the setup link is valid only for the first user.
        Ok(SsoMatch::New(_)) if invitation.is_none() && !tx.has_users().await? => {
            return Ok(SsoResult::Rejected(SsoRejection::NoUsersYet));
        }
        Ok(matched) => matched,
        Err(rejection) => return Ok(SsoResult::Rejected(rejection)),
    };
    let user =
        resolve_user(&mut tx, oidc, claims, matched, invitation.is_some(), origin, now).await?;
    let Some(user) = user else {
        let email = claims.email.clone().unwrap_or_default();
        return Ok(SsoResult::Rejected(SsoRejection::NotLinked(email)));
    };
    if let Some(invitation) = &invitation {
        add_member(&mut tx, invitation, &user, origin, now).await?;
    }
    let signed_in = create_session(&users.context, tx, user, origin, now).await?;
    Ok(SsoResult::SignedIn(signed_in, invitation.map(|invitation| invitation.workspace_id)))
}

/// Locks a user, and returns the user if the claims still belong to the account: it may have been unlinked in the meantime.
/// Members are locked before their users.
async fn lock_linked_user(
    tx: &mut Tx,
    claims: &VerifiedClaims,
    id: &UserId,
) -> Result<Option<User>> {
    tx.lock_user(id).await?;
    let found = tx.find_user_by_login(&claims.issuer, &claims.subject).await?;
    Ok(found.filter(|user| user.id == *id))
}

/// Returns the existing user with this e-mail, whether the issuer is already linked to that user, and whether the invitation
/// resets the account.
async fn find_email_match(
    tx: &mut Tx,
    email: &str,
    issuer: &str,
    invitation: Option<&Invitation>,
) -> Result<Option<EmailMatch>> {
    let Some((user, _)) = lock_user_by_email(tx, email).await? else { return Ok(None) };
    let is_linked = tx.find_login_subject(&user.id, issuer).await?.is_some();
    let is_reset = match invitation {
        Some(invitation) => resets_account(&mut **tx, invitation, &user).await?,
        None => false,
    };
    Ok(Some(EmailMatch { user, is_linked, is_reset }))
}

/// Returns the user of a match. Creates a new user, and links a user to the issuer who was not linked yet. `None`: somebody has
/// just created a user with the e-mail address of a new one.
async fn resolve_user(
    tx: &mut Tx,
    oidc: &OidcSettings,
    claims: &VerifiedClaims,
    matched: SsoMatch,
    has_invitation: bool,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<Option<User>> {
    let user = match matched {
        SsoMatch::Linked(user) => return Ok(Some(user)),
        SsoMatch::TrustedEmail(user) => {
            tx.set_password(&user.id, None).await?;
            tx.delete_other_sessions(&user.id, None).await?;
            tx.delete_logins(&user.id).await?;
            record_in_all_workspaces(tx, &user, origin, now, AuditEvent::SsoLinked).await?;
            user
        }
        SsoMatch::New(email) => {
            let user = User { id: UserId::random(), email, created_at: now };
            if !tx.insert_user(&user, None).await? {
                return Ok(None);
            }
            if let (false, Some(role)) = (has_invitation, oidc.default_role) {
                join_workspace(tx, &default_workspace(), role, &user, origin, now).await?;
            }
            user
        }
    };
    tx.set_login(&user.id, &claims.issuer, &claims.subject, now).await?;
    Ok(Some(user))
}

/// Links the account of the signed-in user to the provider. The e-mails may differ: both sides are proven. An account that is
/// linked to another user of the provider must be unlinked first, so that no link is replaced unnoticed.
async fn link_account(
    context: &Context,
    mut tx: Tx,
    claims: &VerifiedClaims,
    linked_user: Option<User>,
    current: &AuthenticatedSession,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<SsoResult> {
    let user = &current.user;
    if linked_user.is_some_and(|other| other.id != user.id) {
        return Ok(SsoResult::Rejected(SsoRejection::LinkedElsewhere));
    }
    // While the provider responded, the session may have been ended, and the user removed.
    tx.lock_user(&user.id).await?;
    if !tx.has_session(&user.id, &current.session.id).await? {
        return Ok(SsoResult::Rejected(SsoRejection::SessionEnded));
    }
    let subject = tx.find_login_subject(&user.id, &claims.issuer).await?;
    if subject.is_some_and(|subject| subject != claims.subject) {
        return Ok(SsoResult::Rejected(SsoRejection::LinkedToOther));
    }
    tx.set_login(&user.id, &claims.issuer, &claims.subject, now).await?;
    record_in_all_workspaces(&mut tx, user, origin, now, AuditEvent::SsoLinked).await?;
    context.commit(tx).await?;
    Ok(SsoResult::Linked)
}

/// The sign-in methods of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignInMethods {
    pub has_password: bool,
    pub is_linked: bool,
}

/// Returns the sign-in methods of a user.
pub async fn load_sign_in_methods(context: &Context, user: &User) -> Result<SignInMethods> {
    let mut reader = context.store.read().await?;
    let found = reader.find_user(&user.id).await?;
    let is_linked = match &context.settings.oidc {
        Some(oidc) => reader.find_login_subject(&user.id, &oidc.issuer).await?.is_some(),
        None => false,
    };
    let has_password = found.is_some_and(|(_, hash)| hash.is_some());
    Ok(SignInMethods { has_password, is_linked })
}

/// Unlinks the account of the user from the provider. Fails if single sign-on is the only sign-in method.
pub async fn unlink_account(
    users: &Users,
    current: &AuthenticatedSession,
    origin: &ClientInfo,
) -> Result<()> {
    let (_, oidc) = require_configured(users)?;
    let user = &current.user;
    let now = users.context.clock.now();
    let mut tx = users.context.store.begin().await?;
    // Locked, so that the password is not removed in the meantime.
    let has_password = tx.lock_user(&user.id).await?.is_some_and(|(_, hash)| hash.is_some());
    if oidc.is_password_sign_in_disabled || !has_password {
        return Err(Error::PreconditionFailed(Refusal::LastSignInMethod));
    }
    tx.delete_login(&user.id, &oidc.issuer).await?;
    record_in_all_workspaces(&mut tx, user, origin, now, AuditEvent::SsoUnlinked).await?;
    users.context.commit(tx).await
}
