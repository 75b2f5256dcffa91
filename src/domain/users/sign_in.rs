//! Sign-in with a password. Every failure has the same response and takes the same time, and attempts are limited.

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

/// The maximum numbers of attempts per e-mail and per client address in 15 minutes. A user who is locked out by the
/// attempts of others can sign in with an operator's link.
const OF_AN_EMAIL: i64 = 10;
const OF_AN_ADDRESS: i64 = 50;
const QUARTER_MS: i64 = 15 * 60_000;

/// A user who has signed in, and the token of the new session.
#[derive(Debug)]
pub struct SignedIn {
    pub person: User,
    pub token: Plaintext,
}

/// Creates a session if the password is correct. `None`: the e-mail is unknown or the password is wrong.
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
    let (user, hash) = found.map_or((None, None), |(user, hash)| (Some(user), hash));
    let is_correct = app.password_hasher.verify(hash, password).await?;
    let Some(user) = user.filter(|_| is_correct) else { return Ok(None) };

    let now = app.clock.now();
    let tx = app.store.begin().await?;
    Ok(Some(create_session(app, tx, user, origin, now).await?))
}

/// Creates a session for a user that the transaction has read, and commits the transaction.
pub async fn create_session(
    app: &App,
    mut tx: Tx,
    user: User,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<SignedIn> {
    prune(&mut tx, now).await?;
    let token = begin(&mut tx, &user, origin, now).await?;
    record_everywhere(&mut tx, &user, origin, now, "user.login").await?;
    app.commit(tx).await?;
    Ok(SignedIn { person: user, token })
}

/// Returns an error if single sign-on is the only sign-in method. Operators' links work in any case.
pub fn require_passwords_enabled(app: &App) -> Result<()> {
    match app.settings.oidc.as_ref().is_some_and(|oidc| oidc.is_only) {
        true => Err(Error::OperationDisabled(OIDC_ONLY)),
        false => Ok(()),
    }
}

/// Counts a password attempt for an e-mail and returns an error if there were too many for it or from the address.
pub async fn attempt(app: &App, email: &str, origin: &ClientInfo) -> Result<()> {
    let by_email = window(app, &format!("email {email}"), OF_AN_EMAIL);
    count(app, [by_email].into_iter().chain(of_address(app, origin)).collect()).await
}

/// Counts a single sign-on attempt and returns an error if there were too many from the address. There is no password
/// to guess, and the e-mail is not known yet.
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
        false => Err(Error::TooManyRequests("too many sign-in attempts within 15 minutes")),
    }
}
