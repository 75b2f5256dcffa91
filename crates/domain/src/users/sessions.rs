//! Sessions of signed-in users. A session ends when the user ends it, after eight hours without use, and after one week
//! in any case.

use foundation::clock::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use foundation::error::{Error, ResourceRef, Result};
use foundation::id::SessionId;
use foundation::model::{Session, User};
use foundation::secret::{KeyHash, Plaintext};
use store::Tx;

use super::passwords;
use super::record_in_all_workspaces;
use super::sign_in::{consume_password_attempt, is_still_password, require_passwords_enabled};
use crate::audit::AuditEvent;
use crate::caller::ClientInfo;
use crate::context::Context;
use crate::users::Users;

/// The number of random bytes of a session token.
const TOKEN_BYTES: u8 = 32;
/// The idle timeout and the maximum lifetime of a session.
const IDLE_TIMEOUT_MS: i64 = 8 * HOUR_MS;
pub const SESSION_LIFETIME_MS: i64 = 7 * DAY_MS;
/// The precision of the time of the last use: it is written at most once per minute.
const LAST_USE_PRECISION_MS: i64 = MINUTE_MS;

/// A signed-in user and the session.
#[derive(Debug, Clone)]
pub struct AuthenticatedSession {
    pub user: User,
    pub session: Session,
}

/// Whether a request counts as use of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionUse {
    ByUser,
    /// The browser refreshes a page by itself. A page that is left open does not keep its session alive.
    Automatic,
}

/// Returns the session of a token and its user, or `None` if the token is unknown or expired. Updates the time of the
/// last use and the client of the session, if the request counts as use.
pub async fn authenticate_session(
    context: &Context,
    token: &str,
    origin: &ClientInfo,
    session_use: SessionUse,
) -> Result<Option<AuthenticatedSession>> {
    let hash = KeyHash::compute(token).to_base64();
    let Some((mut session, user)) = context.store.read().await?.find_session(&hash).await? else {
        return Ok(None);
    };
    let now = context.clock.now();
    let is_expired = session.seen_at < now.plus_ms(-IDLE_TIMEOUT_MS)
        || session.created_at < now.plus_ms(-SESSION_LIFETIME_MS);
    if is_expired {
        return Ok(None);
    }
    let is_due = session.seen_at <= now.plus_ms(-LAST_USE_PRECISION_MS);
    if is_due && session_use == SessionUse::ByUser {
        session.seen_at = now;
        (session.address, session.user_agent) = client_columns(origin);
        let mut tx = context.store.begin().await?;
        tx.touch_session(&session).await?;
        tx.commit().await?;
    }
    Ok(Some(AuthenticatedSession { user, session }))
}

/// Returns whether a session that was authenticated still exists. It may have been ended since.
pub async fn is_session_active(context: &Context, current: &AuthenticatedSession) -> Result<bool> {
    let mut reader = context.store.read().await?;
    reader.has_session(&current.user.id, &current.session.id).await
}

/// Returns the address and the user agent in the form of the session table.
fn client_columns(origin: &ClientInfo) -> (Option<String>, Option<String>) {
    let agent = origin.user_agent.as_deref().map(str::to_owned);
    (origin.address.map(|address| address.to_string()), agent)
}

/// Inserts a session and returns its token. Only the hash of the token is stored.
pub async fn insert_session(
    tx: &mut Tx,
    user: &User,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<Plaintext> {
    let token = Plaintext::generate(None, TOKEN_BYTES);
    let (address, user_agent) = client_columns(origin);
    let session = Session {
        id: SessionId::random(),
        person_id: user.id.clone(),
        created_at: now,
        seen_at: now,
        address,
        user_agent,
    };
    tx.insert_session(&session, &token.hash().to_base64()).await?;
    Ok(token)
}

/// Deletes expired sessions and invitations.
pub async fn delete_expired(tx: &mut Tx, now: Timestamp) -> Result<()> {
    tx.prune_sessions_and_invitations(
        now.plus_ms(-SESSION_LIFETIME_MS),
        now.plus_ms(-IDLE_TIMEOUT_MS),
        now,
    )
    .await
}

/// Lists the sessions of the user, the most recently used first.
pub async fn list_sessions(
    context: &Context,
    current: &AuthenticatedSession,
) -> Result<Vec<Session>> {
    let now = context.clock.now();
    let mut sessions = context.store.read().await?.list_sessions(&current.user.id).await?;
    sessions.retain(|session| {
        session.seen_at >= now.plus_ms(-IDLE_TIMEOUT_MS)
            && session.created_at >= now.plus_ms(-SESSION_LIFETIME_MS)
    });
    Ok(sessions)
}

/// Ends the current session.
pub async fn sign_out(
    context: &Context,
    current: &AuthenticatedSession,
    origin: &ClientInfo,
) -> Result<()> {
    match end_session(context, current, &current.session.id, origin).await {
        // Another session has ended it.
        Err(Error::NotFound(_)) => Ok(()),
        result => result,
    }
}

/// Ends a session of the user. A session of another user is reported as not found.
pub async fn end_session(
    context: &Context,
    current: &AuthenticatedSession,
    id: &SessionId,
    origin: &ClientInfo,
) -> Result<()> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    if !tx.delete_session(&current.user.id, id).await? {
        return Err(Error::not_found(ResourceRef::Session(id.clone())));
    }
    record_in_all_workspaces(&mut tx, &current.user, origin, now, AuditEvent::SessionEnded).await?;
    context.commit(tx).await
}

/// Ends all sessions of the user except the current one.
pub async fn end_other_sessions(
    context: &Context,
    current: &AuthenticatedSession,
    origin: &ClientInfo,
) -> Result<()> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    tx.delete_other_sessions(&current.user.id, Some(&current.session.id)).await?;
    record_in_all_workspaces(&mut tx, &current.user, origin, now, AuditEvent::OtherSessionsEnded)
        .await?;
    context.commit(tx).await
}

/// Changes the password and ends all other sessions if the old password is correct. Returns whether it was correct.
pub async fn change_password(
    users: &Users,
    current: &AuthenticatedSession,
    old: &str,
    new: &str,
    origin: &ClientInfo,
) -> Result<bool> {
    require_passwords_enabled(&users.context)?;
    let user = &current.user;
    passwords::validate_password(new, &user.email)?;
    consume_password_attempt(&users.context, &user.email, origin).await?;
    let found = users.context.store.read().await?.find_user(&user.id).await?;
    let old_hash = found.and_then(|(_, hash)| hash);
    if !users.password_hasher.verify(old_hash.clone(), old).await? {
        return Ok(false);
    }
    let hash = users.password_hasher.hash(new).await?;
    let now = users.context.clock.now();
    let mut tx = users.context.store.begin().await?;
    if !is_still_password(&mut tx, &user.id, old_hash.as_deref()).await? {
        return Ok(false);
    }
    tx.set_password(&user.id, Some(&hash)).await?;
    tx.delete_other_sessions(&user.id, Some(&current.session.id)).await?;
    record_in_all_workspaces(&mut tx, user, origin, now, AuditEvent::PasswordChanged).await?;
    users.context.commit(tx).await?;
    Ok(true)
}
