//! Signing in: one answer and one cost for whatever is wrong, and not too many attempts.

use super::super::caller::Origin;
use super::super::counting;
use super::sessions::{begin, prune};
use super::{email, record_everywhere};
use crate::app::App;
use crate::error::{Error, Result};
use crate::limiter::Window;
use crate::model::{OnOutage, Person};
use crate::secret::Plaintext;

/// How many attempts an e-mail and an address have in each quarter of an hour. A person who is kept out by others
/// comes in by a link of the command line.
const OF_AN_EMAIL: i64 = 10;
const OF_AN_ADDRESS: i64 = 50;
const QUARTER_MS: i64 = 15 * 60_000;

/// A person who has signed in, and the token of the new session.
#[derive(Debug)]
pub struct SignedIn {
    pub person: Person,
    pub token: Plaintext,
}

/// Begins a session for who knows the password. `None`: nobody has that e-mail, or its password is another one.
pub async fn sign_in(
    app: &App,
    given: &str,
    password: &str,
    origin: &Origin,
) -> Result<Option<SignedIn>> {
    let given = email(given).unwrap_or_default();
    attempt(app, &given, origin).await?;
    let found = app.store.read().await?.person_of(&given).await?;
    let (person, hash) = found.map_or((None, None), |(person, hash)| (Some(person), Some(hash)));
    let is_right = app.passwords.verify(hash, password).await?;
    let Some(person) = person.filter(|_| is_right) else { return Ok(None) };

    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    prune(&mut tx, now).await?;
    let token = begin(&mut tx, &person, origin, now).await?;
    record_everywhere(&mut tx, &person, origin, now, "user.login").await?;
    app.commit(tx).await?;
    Ok(Some(SignedIn { person, token }))
}

/// Counts an attempt to show the password of an e-mail; an error where there have been too many.
pub async fn attempt(app: &App, email: &str, origin: &Origin) -> Result<()> {
    let window = |whose: String, limit| {
        Window::new(app.keyspace.attempts(&whose, QUARTER_MS), limit, QUARTER_MS, 1)
    };
    let mut windows = vec![window(format!("email {email}"), OF_AN_EMAIL)];
    // Behind a proxy that nobody has said to trust, all have one address.
    if let Some(address) = origin.address.filter(|_| !origin.is_shared) {
        windows.push(window(format!("address {address}"), OF_AN_ADDRESS));
    }
    match counting::count(app, windows, OnOutage::Local).await?.taken {
        true => Ok(()),
        false => Err(Error::TooMany("too many attempts to sign in; try again in a quarter hour")),
    }
}
