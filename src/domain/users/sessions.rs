//! Sessions of signed-in users. A session ends when the user ends it, after eight hours without use, and after one week
//! in any case.

use foundation::clock::Timestamp;
use foundation::error::{Error, Result, Subject};
use foundation::id::SessionId;
use foundation::model::{Session, User};
use foundation::secret::{KeyHash, Plaintext};
use store::Tx;

use super::super::caller::ClientInfo;
use super::passwords;
use super::record_everywhere;
use super::sign_in::{attempt, require_passwords_enabled};
use crate::app::App;

/// The number of random bytes of a session token.
const TOKEN_BYTES: u8 = 32;
/// The idle timeout and the maximum lifetime of a session.
const IDLE_MS: i64 = 8 * 60 * 60_000;
pub const LIFE_MS: i64 = 7 * 24 * 60 * 60_000;
/// The precision of the time of the last use: it is written at most once per minute.
const SEEN_WITHIN_MS: i64 = 60_000;

/// A signed-in user and the session.
#[derive(Debug, Clone)]
pub struct AuthenticatedSession {
    pub person: User,
    pub session: Session,
}

/// Returns the session of a token and its user, or `None` if the token is unknown or expired. Updates the time of the
/// last use and the client of the session.
pub async fn authenticate_session(
    app: &App,
    token: &str,
    origin: &ClientInfo,
) -> Result<Option<AuthenticatedSession>> {
    let hash = KeyHash::of(token).base64();
    let Some((mut session, user)) = app.store.read().await?.session(&hash).await? else {
        return Ok(None);
    };
    let now = app.clock.now();
    let is_expired =
        session.seen_at < now.plus_ms(-IDLE_MS) || session.created_at < now.plus_ms(-LIFE_MS);
    if is_expired {
        return Ok(None);
    }
    if session.seen_at <= now.plus_ms(-SEEN_WITHIN_MS) {
        session.seen_at = now;
        (session.address, session.user_agent) = client_columns(origin);
        let mut tx = app.store.begin().await?;
        tx.touch_session(&session).await?;
        tx.commit().await?;
    }
    Ok(Some(AuthenticatedSession { person: user, session }))
}

/// Returns the address and the user agent in the form of the session table.
fn client_columns(origin: &ClientInfo) -> (Option<String>, Option<String>) {
    let agent = origin.user_agent.as_deref().map(str::to_owned);
    (origin.address.map(|address| address.to_string()), agent)
}

/// Inserts a session and returns its token. Only the hash of the token is stored.
pub async fn begin(
    tx: &mut Tx,
    user: &User,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<Plaintext> {
    let token = Plaintext::random(None, TOKEN_BYTES);
    let (address, user_agent) = client_columns(origin);
    let session = Session {
        id: SessionId::random(),
        person_id: user.id.clone(),
        created_at: now,
        seen_at: now,
        address,
        user_agent,
    };
    tx.insert_session(&session, &token.hash().base64()).await?;
    Ok(token)
}

/// Deletes expired sessions and invitations.
pub async fn prune(tx: &mut Tx, now: Timestamp) -> Result<()> {
    tx.prune_people(now.plus_ms(-LIFE_MS), now.plus_ms(-IDLE_MS), now).await
}

/// Lists the sessions of the user, the most recently used first.
pub async fn sessions(app: &App, current: &AuthenticatedSession) -> Result<Vec<Session>> {
    let now = app.clock.now();
    let mut sessions = app.store.read().await?.sessions_of(&current.person.id).await?;
    sessions.retain(|session| {
        session.seen_at >= now.plus_ms(-IDLE_MS) && session.created_at >= now.plus_ms(-LIFE_MS)
    });
    Ok(sessions)
}

/// Ends the current session.
pub async fn sign_out(
    app: &App,
    current: &AuthenticatedSession,
    origin: &ClientInfo,
) -> Result<()> {
    match end(app, current, &current.session.id, origin).await {
        // Another session has ended it.
        Err(Error::NotFound(_)) => Ok(()),
        result => result,
    }
}

/// Ends a session of the user. A session of another user is reported as not found.
pub async fn end(
    app: &App,
    current: &AuthenticatedSession,
    id: &SessionId,
    origin: &ClientInfo,
) -> Result<()> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    if !tx.end_session(&current.person.id, id).await? {
        return Err(Error::not_found(Subject::Session(id.clone())));
    }
    record_everywhere(&mut tx, &current.person, origin, now, "user.endSession").await?;
    app.commit(tx).await
}

/// Ends all sessions of the user except the current one.
pub async fn end_others(
    app: &App,
    current: &AuthenticatedSession,
    origin: &ClientInfo,
) -> Result<()> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    tx.end_other_sessions(&current.person.id, Some(&current.session.id)).await?;
    record_everywhere(&mut tx, &current.person, origin, now, "user.endOtherSessions").await?;
    app.commit(tx).await
}

/// Changes the password and ends all other sessions if the old password is correct. Returns whether it was correct.
pub async fn change_password(
    app: &App,
    current: &AuthenticatedSession,
    old: &str,
    new: &str,
    origin: &ClientInfo,
) -> Result<bool> {
    require_passwords_enabled(app)?;
    let user = &current.person;
    passwords::check(new, &user.email)?;
    attempt(app, &user.email, origin).await?;
    let found = app.store.read().await?.person(&user.id).await?;
    let hash = found.and_then(|(_, hash)| hash);
    if !app.password_hasher.verify(hash, old).await? {
        return Ok(false);
    }
    let hash = app.password_hasher.hash(new).await?;
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    tx.set_password(&user.id, Some(&hash)).await?;
    tx.end_other_sessions(&user.id, Some(&current.session.id)).await?;
    record_everywhere(&mut tx, user, origin, now, "user.changePassword").await?;
    app.commit(tx).await?;
    Ok(true)
}
