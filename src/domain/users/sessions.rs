//! Sessions: browsers in which somebody is signed in. They end when they are told to, when nobody has used them for
//! hours, and after a week in any case.

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

/// Random bytes in the token of a session.
const TOKEN_BYTES: u8 = 32;
/// How long a session lasts that nobody uses, and how long any.
const IDLE_MS: i64 = 8 * 60 * 60_000;
pub const LIFE_MS: i64 = 7 * 24 * 60 * 60_000;
/// How exactly it is known when one was last used.
const SEEN_WITHIN_MS: i64 = 60_000;

/// A person who is signed in, and in which session.
#[derive(Debug, Clone)]
pub struct AuthenticatedSession {
    pub person: User,
    pub session: Session,
}

/// Who has this token, if it is good.
pub async fn authenticate_session(
    app: &App,
    token: &str,
    origin: &ClientInfo,
) -> Result<Option<AuthenticatedSession>> {
    let hash = KeyHash::of(token).base64();
    let Some((mut session, person)) = app.store.read().await?.session(&hash).await? else {
        return Ok(None);
    };
    let now = app.clock.now();
    let is_over =
        session.seen_at < now.plus_ms(-IDLE_MS) || session.created_at < now.plus_ms(-LIFE_MS);
    if is_over {
        return Ok(None);
    }
    if session.seen_at <= now.plus_ms(-SEEN_WITHIN_MS) {
        session.seen_at = now;
        (session.address, session.user_agent) = client_columns(origin);
        let mut tx = app.store.begin().await?;
        tx.touch_session(&session).await?;
        tx.commit().await?;
    }
    Ok(Some(AuthenticatedSession { person, session }))
}

fn client_columns(origin: &ClientInfo) -> (Option<String>, Option<String>) {
    let agent = origin.user_agent.as_deref().map(str::to_owned);
    (origin.address.map(|address| address.to_string()), agent)
}

/// Begins a session; its token, which nothing keeps.
pub async fn begin(
    tx: &mut Tx,
    person: &User,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<Plaintext> {
    let token = Plaintext::random(None, TOKEN_BYTES);
    let (address, user_agent) = client_columns(origin);
    let session = Session {
        id: SessionId::random(),
        person_id: person.id.clone(),
        created_at: now,
        seen_at: now,
        address,
        user_agent,
    };
    tx.insert_session(&session, &token.hash().base64()).await?;
    Ok(token)
}

/// Forgets sessions and links that are over.
pub async fn prune(tx: &mut Tx, now: Timestamp) -> Result<()> {
    tx.prune_people(now.plus_ms(-LIFE_MS), now.plus_ms(-IDLE_MS), now).await
}

/// A person's sessions, the one first that was used last.
pub async fn sessions(app: &App, known: &AuthenticatedSession) -> Result<Vec<Session>> {
    let now = app.clock.now();
    let mut sessions = app.store.read().await?.sessions_of(&known.person.id).await?;
    sessions.retain(|session| {
        session.seen_at >= now.plus_ms(-IDLE_MS) && session.created_at >= now.plus_ms(-LIFE_MS)
    });
    Ok(sessions)
}

/// Ends the session that is used.
pub async fn sign_out(app: &App, known: &AuthenticatedSession, origin: &ClientInfo) -> Result<()> {
    match end(app, known, &known.session.id, origin).await {
        // It has been ended from elsewhere.
        Err(Error::NotFound(_)) => Ok(()),
        done => done,
    }
}

/// Ends one of a person's sessions.
pub async fn end(
    app: &App,
    known: &AuthenticatedSession,
    id: &SessionId,
    origin: &ClientInfo,
) -> Result<()> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    if !tx.end_session(&known.person.id, id).await? {
        return Err(Error::not_found(Subject::Session(id.clone())));
    }
    record_everywhere(&mut tx, &known.person, origin, now, "user.endSession").await?;
    app.commit(tx).await
}

/// Ends all of a person's sessions but the one that is used.
pub async fn end_others(
    app: &App,
    known: &AuthenticatedSession,
    origin: &ClientInfo,
) -> Result<()> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    tx.end_other_sessions(&known.person.id, Some(&known.session.id)).await?;
    record_everywhere(&mut tx, &known.person, origin, now, "user.endOtherSessions").await?;
    app.commit(tx).await
}

/// Changes the password of who knows the old one, and ends all other sessions. Whether it was known.
pub async fn change_password(
    app: &App,
    known: &AuthenticatedSession,
    old: &str,
    new: &str,
    origin: &ClientInfo,
) -> Result<bool> {
    require_passwords_enabled(app)?;
    let person = &known.person;
    passwords::check(new, &person.email)?;
    attempt(app, &person.email, origin).await?;
    let found = app.store.read().await?.person(&person.id).await?;
    let hash = found.and_then(|(_, hash)| hash);
    if !app.password_hasher.verify(hash, old).await? {
        return Ok(false);
    }
    let hash = app.password_hasher.hash(new).await?;
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    tx.set_password(&person.id, Some(&hash)).await?;
    tx.end_other_sessions(&person.id, Some(&known.session.id)).await?;
    record_everywhere(&mut tx, person, origin, now, "user.changePassword").await?;
    app.commit(tx).await?;
    Ok(true)
}
