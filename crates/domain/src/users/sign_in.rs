//! Sign-in with a password. Every failure has the same response and takes the same time, and attempts are limited.

use foundation::clock::{MINUTE_MS, Timestamp};
use foundation::config::OIDC_ONLY;
use foundation::error::{Error, Result, RetryAfter};
use foundation::id::UserId;
use foundation::model::{OutagePolicy, User};
use foundation::secret::Plaintext;
use limiter::Window;
use store::Tx;

use super::sessions::{delete_expired, insert_session};
use super::{parse_email, record_in_all_workspaces};
use crate::admission;
use crate::audit::AuditEvent;
use crate::caller::ClientInfo;
use crate::context::Context;
use crate::users::Users;

/// The maximum numbers of attempts per e-mail and per client address in 15 minutes. A user who is locked out by the
/// attempts of others can sign in with an operator's link.
const ATTEMPTS_PER_EMAIL_MAX: i64 = 10;
const ATTEMPTS_PER_ADDRESS_MAX: i64 = 50;
const ATTEMPT_WINDOW_MS: i64 = 15 * MINUTE_MS;

/// A user who has signed in, and the token of the new session.
#[derive(Debug)]
pub struct SignedIn {
    pub user: User,
    pub token: Plaintext,
}

/// Creates a session if the password is correct. `None`: the e-mail is unknown or the password is wrong.
pub async fn sign_in(
    users: &Users,
    given: &str,
    password: &str,
    origin: &ClientInfo,
) -> Result<Option<SignedIn>> {
    require_passwords_enabled(&users.context)?;
    let given = parse_email(given).unwrap_or_default();
    consume_password_attempt(&users.context, &given, origin).await?;
    let found = users.context.store.read().await?.find_user_by_email(&given).await?;
    let (user, hash) = found.map_or((None, None), |(user, hash)| (Some(user), hash));
    let is_correct = users.password_hasher.verify(hash.clone(), password).await?;
    let Some(user) = user.filter(|_| is_correct) else { return Ok(None) };

    let now = users.context.clock.now();
    let mut tx = users.context.store.begin().await?;
    if !is_still_password(&mut tx, &user.id, hash.as_deref()).await? {
        return Ok(None);
    }
    Ok(Some(create_session(&users.context, tx, user, origin, now).await?))
}

/// Returns whether a user, who is locked, still has the password with this hash. Verifying it took long: in the meantime the
/// password may have been replaced, and all sessions ended.
pub async fn is_still_password(tx: &mut Tx, user: &UserId, hash: Option<&str>) -> Result<bool> {
    Ok(tx.lock_user(user).await?.is_some_and(|(_, stored)| stored.as_deref() == hash))
}

/// Creates a session for a user that the transaction has read, and commits the transaction.
pub async fn create_session(
    context: &Context,
    mut tx: Tx,
    user: User,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<SignedIn> {
    delete_expired(&mut tx, now).await?;
    let token = insert_session(&mut tx, &user, origin, now).await?;
    record_in_all_workspaces(&mut tx, &user, origin, now, AuditEvent::UserSignedIn).await?;
    context.commit(tx).await?;
    Ok(SignedIn { user, token })
}

/// Returns an error if single sign-on is the only sign-in method. Operators' links work in any case.
pub fn require_passwords_enabled(context: &Context) -> Result<()> {
    match context.settings.oidc.as_ref().is_some_and(|oidc| oidc.is_password_sign_in_disabled) {
        true => Err(Error::OperationDisabled(OIDC_ONLY)),
        false => Ok(()),
    }
}

/// Counts a password attempt for an e-mail and returns an error if there were too many for it or from the address.
pub async fn consume_password_attempt(
    context: &Context,
    email: &str,
    origin: &ClientInfo,
) -> Result<()> {
    let by_email = attempt_window(context, &format!("email {email}"), ATTEMPTS_PER_EMAIL_MAX);
    consume_attempts(
        context,
        [by_email].into_iter().chain(address_window(context, origin)).collect(),
    )
    .await
}

/// Counts a single sign-on attempt and returns an error if there were too many from the address. There is no password
/// to guess, and the e-mail is not known yet.
pub async fn consume_sso_attempt(context: &Context, origin: &ClientInfo) -> Result<()> {
    consume_attempts(context, address_window(context, origin).into_iter().collect()).await
}

fn address_window(context: &Context, origin: &ClientInfo) -> Option<Window> {
    let network = origin.network()?;
    Some(attempt_window(context, &format!("address {network}"), ATTEMPTS_PER_ADDRESS_MAX))
}

fn attempt_window(context: &Context, whose: &str, limit: i64) -> Window {
    let counter = context.keyspace.sign_in_attempts(whose, ATTEMPT_WINDOW_MS);
    // Users belong to no region, so the first one counts their attempts.
    let placement = context.placement(None, &counter, ATTEMPT_WINDOW_MS);
    Window::new(counter, limit, ATTEMPT_WINDOW_MS, 1).placed(&placement, || context.clock.now())
}

async fn consume_attempts(context: &Context, windows: Vec<Window>) -> Result<()> {
    if windows.is_empty() {
        return Ok(());
    }
    let decision = admission::consume_exact(context, windows, OutagePolicy::Local).await?;
    if decision.is_admitted {
        return Ok(());
    }
    let now = context.clock.now();
    let exceeded = decision.statuses.iter().filter(|status| status.is_exceeded);
    let reset_at = exceeded.map(|status| status.reset_at).max();
    Err(Error::TooManyRequests {
        reason: "too many sign-in attempts",
        retry_after: RetryAfter::until(reset_at.unwrap_or(now.plus_ms(ATTEMPT_WINDOW_MS)), now),
    })
}
