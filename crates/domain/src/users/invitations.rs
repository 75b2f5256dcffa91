//! Invitations: single-use links that make a user a member. They are created for the first user, by an operator or by
//! an owner. Only the hash of the token is stored.

use foundation::clock::{DAY_MS, Timestamp};
use foundation::error::{Error, Refusal, ResourceRef, Result};
use foundation::id::{InvitationId, UserId, WorkspaceId};
use foundation::model::{Invitation, InvitationKind, MemberRole, User};
use foundation::secret::{KeyHash, Plaintext};
use store::{Reads, Store, Tx};

use super::members::{add_role_change, invitation_target};
use super::passwords;
use super::sessions::{delete_expired, insert_session};
use super::sign_in::{SignedIn, consume_password_attempt, require_passwords_enabled};
use super::{parse_email, record_in_all_workspaces, user_target};
use crate::audit::{Actor, AuditBatch, AuditEvent};
use crate::caller::ClientInfo;
use crate::context::Context;
use crate::root_keys::default_workspace;
use crate::users::Users;

/// The number of random bytes of an invitation token.
const TOKEN_BYTES: u8 = 32;
/// The lifetime of an invitation from the server or an operator, and of one from a member.
const SETUP_LIFETIME_MS: i64 = DAY_MS;
const INVITATION_LIFETIME_MS: i64 = 3 * DAY_MS;
/// The maximum number of members of a workspace.
const MEMBERS_MAX: i64 = 10_000;

/// The fields of an invitation to create.
pub struct NewInvitation<'a> {
    pub workspace: &'a WorkspaceId,
    pub kind: InvitationKind,
    pub role: MemberRole,
    pub invited_by: Option<&'a str>,
}

/// Inserts an invitation and returns it with its token. Only the hash of the token is stored.
pub async fn insert_invitation(
    tx: &mut Tx,
    new: &NewInvitation<'_>,
    now: Timestamp,
) -> Result<(Invitation, Plaintext)> {
    let token = Plaintext::generate(None, TOKEN_BYTES);
    let lifetime_ms = match new.kind {
        InvitationKind::Setup | InvitationKind::Operator => SETUP_LIFETIME_MS,
        InvitationKind::Member => INVITATION_LIFETIME_MS,
    };
    let invitation = Invitation {
        id: InvitationId::random(),
        workspace_id: new.workspace.clone(),
        workspace_name: String::new(),
        kind: new.kind,
        role: new.role,
        invited_by: new.invited_by.map(str::to_owned),
        created_at: now,
        expires_at: now.plus_ms(lifetime_ms),
    };
    let inserted = tx.insert_invitation(&invitation, &token.hash().to_base64()).await;
    inserted.map_err(|e| match e.is_foreign_key_violation() {
        true => Error::not_found(ResourceRef::Workspace(new.workspace.clone())),
        false => e,
    })?;
    Ok((invitation, token))
}

/// Creates the invitation for the first user, if no user exists. Each start creates one; all are valid until one is
/// used. The store is passed because `app.store` is not ready yet.
pub async fn create_setup_invitation(
    context: &Context,
    store: &Store,
) -> Result<Option<Plaintext>> {
    let now = context.clock.now();
    let mut tx = store.begin().await?;
    if tx.has_users().await? {
        return Ok(None);
    }
    delete_expired(&mut tx, now).await?;
    let workspace = default_workspace();
    let (kind, role) = (InvitationKind::Setup, MemberRole::Owner);
    let new = NewInvitation { workspace: &workspace, kind, role, invited_by: None };
    let (_, token) = insert_invitation(&mut tx, &new, now).await?;
    context.commit_to(store, tx).await?;
    Ok(Some(token))
}

/// Creates an invitation for an owner, for an operator. No permission is checked: an operator has access to the server
/// itself. If the link is opened with the e-mail of a member of the workspace, it sets a new password for that user, and ends
/// every other way in to the account.
pub async fn create_operator_invitation(
    context: &Context,
    workspace: &WorkspaceId,
) -> Result<Plaintext> {
    let now = context.clock.now();
    let (kind, role) = (InvitationKind::Operator, MemberRole::Owner);
    let mut tx = context.store.begin().await?;
    let (invitation, token) =
        insert_invitation(&mut tx, &NewInvitation { workspace, kind, role, invited_by: None }, now)
            .await?;
    let mut entries = AuditBatch::new(Actor::Command("cli"), workspace, now);
    entries.add(AuditEvent::MemberInvited, &[invitation_target(&invitation)]);
    entries.write(&mut tx).await?;
    context.commit(tx).await?;
    Ok(token)
}

/// Returns the invitation of a token if it exists and has not expired.
pub async fn find_invitation(context: &Context, token: &str) -> Result<Option<Invitation>> {
    let found =
        context.store.read().await?.find_invitation(&KeyHash::compute(token).to_base64()).await?;
    Ok(found.filter(|invitation| invitation.expires_at >= context.clock.now()))
}

/// Reports whether an invitation can be accepted with a password. Those from the server and from operators always can,
/// so that an operator can always sign in.
pub fn is_password_allowed(context: &Context, invitation: &Invitation) -> bool {
    invitation.kind != InvitationKind::Member || require_passwords_enabled(context).is_ok()
}

/// The result of [`accept_invitation`].
#[derive(Debug)]
pub enum AcceptResult {
    /// The user, new or existing, is a member of the workspace and is signed in.
    Joined(SignedIn, WorkspaceId),
    /// A user with this e-mail exists and has another password.
    WrongPassword,
    /// The invitation has been used, has expired, or does not exist.
    InvalidInvitation,
}

/// Accepts an invitation. A new user is created with the password. An existing user must have the password, unless the
/// invitation resets the account: then it becomes the new password.
pub async fn accept_invitation(
    users: &Users,
    token: &str,
    given: &str,
    password: &str,
    origin: &ClientInfo,
) -> Result<AcceptResult> {
    let Some(invitation) = find_invitation(&users.context, token).await? else {
        return Ok(AcceptResult::InvalidInvitation);
    };
    if !is_password_allowed(&users.context, &invitation) {
        require_passwords_enabled(&users.context)?;
    }
    let given = parse_email(given)?;
    // Both before the user is looked up: otherwise an invitation would say, any number of times, who has an account.
    consume_password_attempt(&users.context, &given, origin).await?;
    passwords::validate_password(password, &given)?;
    let mut reader = users.context.store.read().await?;
    let existing = reader.find_user_by_email(&given).await?;
    let keeps_password = match &existing {
        Some((user, _)) => !resets_account(&mut *reader, &invitation, user).await?,
        None => false,
    };
    // Hashing takes long.
    drop(reader);
    let password = match existing {
        Some((_, hash)) if keeps_password => {
            if !users.password_hasher.verify(hash.clone(), password).await? {
                return Ok(AcceptResult::WrongPassword);
            }
            GivenPassword::Verified(hash)
        }
        Some(_) | None => GivenPassword::New(users.password_hasher.hash(password).await?),
    };
    redeem_and_sign_in(&users.context, token, &given, password, origin).await
}

/// Returns whether an invitation gives the account of a user to its holder, without the password: that of an operator does so
/// for members of its workspace. The accounts of others also open other workspaces.
pub async fn resets_account(
    reads: &mut dyn Reads,
    invitation: &Invitation,
    user: &User,
) -> Result<bool> {
    if invitation.kind != InvitationKind::Operator {
        return Ok(false);
    }
    Ok(reads.find_membership(&invitation.workspace_id, &user.id).await?.is_some())
}

/// The password that was given with an invitation, as its hash.
enum GivenPassword {
    /// It is that of the user with the e-mail address.
    Verified(Option<String>),
    /// No such user existed, or the invitation replaces the password.
    New(String),
}

/// Redeems the invitation and creates the session. Hashing takes long: what was true of the user before may have changed.
async fn redeem_and_sign_in(
    context: &Context,
    token: &str,
    given: &str,
    password: GivenPassword,
    origin: &ClientInfo,
) -> Result<AcceptResult> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let Some(invitation) = redeem(&mut tx, token, now).await? else {
        return Ok(AcceptResult::InvalidInvitation);
    };
    let existing = lock_user_by_email(&mut tx, given).await?;
    let is_reset = match &existing {
        Some((user, _)) => resets_account(&mut *tx, &invitation, user).await?,
        None => false,
    };
    let user = match (existing, password) {
        (Some((user, hash)), GivenPassword::Verified(verified)) if hash == verified => user,
        (Some((user, _)), GivenPassword::New(hash)) if is_reset => {
            reset_account(&mut tx, &user, &hash, origin, now).await?;
            user
        }
        (None, GivenPassword::New(hash)) => {
            let user = User { id: UserId::random(), email: given.to_owned(), created_at: now };
            if !tx.insert_user(&user, Some(&hash)).await? {
                return Ok(AcceptResult::WrongPassword);
            }
            user
        }
        // The user was created, deleted or removed from the workspace in the meantime, or has another password now.
        _ => return Ok(AcceptResult::WrongPassword),
    };
    add_member(&mut tx, &invitation, &user, origin, now).await?;
    let token = insert_session(&mut tx, &user, origin, now).await?;
    context.commit(tx).await?;
    Ok(AcceptResult::Joined(SignedIn { user, token }, invitation.workspace_id))
}

/// Replaces every way in to an account by a password: ends all sessions, and unlinks the account from the provider.
async fn reset_account(
    tx: &mut Tx,
    user: &User,
    hash: &str,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<()> {
    tx.set_password(&user.id, Some(hash)).await?;
    tx.delete_other_sessions(&user.id, None).await?;
    record_in_all_workspaces(tx, user, origin, now, AuditEvent::PasswordChanged).await?;
    if tx.delete_logins(&user.id).await? {
        record_in_all_workspaces(tx, user, origin, now, AuditEvent::SsoUnlinked).await?;
    }
    Ok(())
}

/// Returns the user with this e-mail address, locked, and the hash of the password.
pub async fn lock_user_by_email(
    tx: &mut Tx,
    email: &str,
) -> Result<Option<(User, Option<String>)>> {
    match tx.find_user_by_email(email).await? {
        Some((user, _)) => tx.lock_user(&user.id).await,
        None => Ok(None),
    }
}

/// Deletes an invitation and returns it. Locks the members of its workspace until the transaction ends. `None`: the
/// invitation is not valid.
pub async fn redeem(tx: &mut Tx, token: &str, now: Timestamp) -> Result<Option<Invitation>> {
    let stored = KeyHash::compute(token).to_base64();
    let Some(invitation) =
        tx.find_invitation(&stored).await?.filter(|invitation| invitation.expires_at >= now)
    else {
        return Ok(None);
    };
    // Serialized: if two requests use one invitation, or two invitations for the first user, only one succeeds.
    tx.lock_members(&invitation.workspace_id).await?;
    let is_superseded = invitation.kind == InvitationKind::Setup && tx.has_users().await?;
    let is_deleted = tx.delete_invitation(&invitation.workspace_id, &invitation.id).await?;
    Ok(Some(invitation).filter(|_| is_deleted && !is_superseded))
}

/// Adds the user of a redeemed invitation to its workspace.
pub async fn add_member(
    tx: &mut Tx,
    invitation: &Invitation,
    user: &User,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<()> {
    tx.delete_setup_invitations().await?;
    let workspace = &invitation.workspace_id;
    let is_new = join_workspace(tx, workspace, invitation.role, user, origin, now).await?;
    if is_new || invitation.kind != InvitationKind::Operator {
        return Ok(());
    }
    let Some(member) = tx.find_member(workspace, &user.id).await? else { return Ok(()) };
    if member.role == invitation.role {
        return Ok(());
    }
    tx.set_member_role(workspace, &user.id, invitation.role).await?;
    let mut entries = AuditBatch::new(Actor::User(user, origin), workspace, now);
    add_role_change(&mut entries, &member, invitation.role)?;
    entries.write(tx).await
}

/// Adds a user to a workspace unless it has the maximum number of members. Returns whether the user was not a member
/// yet, which is no error in a full workspace. The members and the user must be locked.
pub async fn join_workspace(
    tx: &mut Tx,
    workspace: &WorkspaceId,
    role: MemberRole,
    user: &User,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<bool> {
    let is_member = tx.find_membership(workspace, &user.id).await?.is_some();
    if !is_member && tx.count_members(workspace).await? >= MEMBERS_MAX {
        return Err(Error::PreconditionFailed(Refusal::TooManyMembers(MEMBERS_MAX)));
    }
    let is_new = tx.insert_member(workspace, &user.id, role, now).await?;
    if is_new {
        let mut entries = AuditBatch::new(Actor::User(user, origin), workspace, now);
        entries.add(AuditEvent::MemberJoined, &[user_target(user)]);
        entries.write(tx).await?;
    }
    Ok(is_new)
}
