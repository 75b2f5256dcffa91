//! Signing in: one answer and one cost for whatever is wrong, and not too many attempts.

use foundation::clock::Timestamp;
use foundation::config::OIDC_ONLY;
use foundation::error::{Error, Result};
use foundation::model::{OutagePolicy, User};
use foundation::secret::Plaintext;
use limiter::Window;
use store::Tx;

use super::super::admission;
use super::super::caller::ClientInfo;
use super::sessions::{begin, prune};
use super::{email, record_everywhere};
use crate::app::App;

/// How many attempts an e-mail and an address have in each quarter of an hour. A person who is kept out by others
/// comes in by a link of the command line.
const OF_AN_EMAIL: i64 = 10;
const OF_AN_ADDRESS: i64 = 50;
const QUARTER_MS: i64 = 15 * 60_000;

/// A person who has signed in, and the token of the new session.
#[derive(Debug)]
pub struct SignedIn {
    pub person: User,
    pub token: Plaintext,
}

/// Begins a session for who knows the password. `None`: nobody has that e-mail, or its password is another one.
pub async fn sign_in(
    app: &App,
    given: &str,
    password: &str,
    origin: &ClientInfo,
) -> Result<Option<SignedIn>> {
    require_passwords_enabled(app)?;
    let given = email(given).unwrap_or_default();
    attempt(app, &given, origin).await?;
    let found = app.store.read().await?.person_of(&given).await?;
    let (person, hash) = found.map_or((None, None), |(person, hash)| (Some(person), hash));
    let is_right = app.password_hasher.verify(hash, password).await?;
    let Some(person) = person.filter(|_| is_right) else { return Ok(None) };

    let now = app.clock.now();
    let tx = app.store.begin().await?;
    Ok(Some(create_session(app, tx, person, origin, now).await?))
}

/// Begins a session for somebody whom the transaction found, and commits it.
pub async fn create_session(
    app: &App,
    mut tx: Tx,
    person: User,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<SignedIn> {
    prune(&mut tx, now).await?;
    let token = begin(&mut tx, &person, origin, now).await?;
    record_everywhere(&mut tx, &person, origin, now, "user.login").await?;
    app.commit(tx).await?;
    Ok(SignedIn { person, token })
}

/// An error where single sign-on is the only way in. The links of an operator are another one, always.
pub fn require_passwords_enabled(app: &App) -> Result<()> {
    match app.settings.oidc.as_ref().is_some_and(|oidc| oidc.is_only) {
        true => Err(Error::OperationDisabled(OIDC_ONLY)),
        false => Ok(()),
    }
}

/// Counts an attempt to show the password of an e-mail; an error where there have been too many.
pub async fn attempt(app: &App, email: &str, origin: &ClientInfo) -> Result<()> {
    let of_email = window(app, &format!("email {email}"), OF_AN_EMAIL);
    count(app, [of_email].into_iter().chain(of_address(app, origin)).collect()).await
}

/// Counts an attempt to come in by what an issuer says; an error where there have been too many from an address. There
/// is no password to guess, and nobody's e-mail is known yet.
pub async fn attempt_from(app: &App, origin: &ClientInfo) -> Result<()> {
    count(app, of_address(app, origin).into_iter().collect()).await
}

fn of_address(app: &App, origin: &ClientInfo) -> Option<Window> {
    let network = origin.network()?;
    Some(window(app, &format!("address {network}"), OF_AN_ADDRESS))
}

fn window(app: &App, whose: &str, limit: i64) -> Window {
    Window::new(app.keyspace.sign_in_attempts(whose, QUARTER_MS), limit, QUARTER_MS, 1)
}

async fn count(app: &App, windows: Vec<Window>) -> Result<()> {
    if windows.is_empty() {
        return Ok(());
    }
    match admission::consume_exact(app, windows, OutagePolicy::Local).await?.taken {
        true => Ok(()),
        false => {
            Err(Error::TooManyRequests("too many attempts to sign in; try again in a quarter hour"))
        }
    }
}
