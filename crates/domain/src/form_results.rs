//! What the forms of the dashboard create: a form that is sent twice creates once, and a secret is shown once.
//!
//! The result of a form is stored in the transaction that creates it. Its secret is sealed with a key that only the
//! cookie of the browser can derive, so that neither the database nor a URL reveals it, and any replica can show it.

use foundation::clock::{DAY_MS, MINUTE_MS, Timestamp};
use foundation::error::{Error, ResourceRef, Result};
use foundation::secret::Plaintext;
use serde_json::{Value, json};
use store::{FormResult, Tx};

use crate::caller::Caller;
use crate::context::Context;
use crate::form_submission::{FormResultKey, FormSubmission};

/// How long the secret of a result can be shown.
pub const SECRET_LIFETIME_MS: i64 = MINUTE_MS;
/// How long a form is recognized when it is sent again.
const RESULT_LIFETIME_MS: i64 = DAY_MS;

/// The secret of what a form creates.
pub struct CreatedSecret<'a> {
    pub plaintext: &'a Plaintext,
    /// When the secret that it replaces expires.
    pub replaced_expires_at: Option<Timestamp>,
}

impl<'a> CreatedSecret<'a> {
    /// Creates a secret that replaces no other one.
    pub fn new(plaintext: &'a Plaintext) -> Self {
        Self { plaintext, replaced_expires_at: None }
    }
}

/// The secret of a result when it is to be shown.
#[derive(Debug)]
pub enum FormSecret {
    Available(ShownSecret),
    /// It was shown before.
    Shown,
    /// It was not shown in time.
    Expired,
    /// The session has no such result, or had it more than a day ago.
    NotFound,
}

/// A secret that is shown now, and never again.
#[derive(Debug)]
pub struct ShownSecret {
    pub plaintext: Plaintext,
    /// When the secret that it replaces expires.
    pub replaced_expires_at: Option<Timestamp>,
    /// The URL under which the browser reaches this server.
    pub base_url: String,
}

/// Runs what a form creates, and returns the id of what it created. If the form was sent before, nothing is run: the id
/// is that of what it created then. What runs must call [`record`].
pub async fn create_once<Id: AsRef<str>>(
    context: &Context,
    caller: &Caller,
    creation: impl Future<Output = Result<Id>>,
) -> Result<String> {
    if let Some(id) = find_created_id(context, caller).await? {
        return Ok(id);
    }
    match creation.await {
        Ok(id) => Ok(id.as_ref().to_owned()),
        // The same form, sent at the same time, may have been faster: then what it created may be in the way.
        Err(error) => find_created_id(context, caller).await?.ok_or(error),
    }
}

/// Returns the id of what the form of the caller created when it was sent before.
pub async fn find_created_id(context: &Context, caller: &Caller) -> Result<Option<String>> {
    let Some(submission) = &caller.form_submission else { return Ok(None) };
    let FormResultKey { session_id, form_id, .. } = &submission.key;
    let found = context.store.read().await?.find_form_result(session_id, form_id).await?;
    Ok(found.map(|result| result.created_id))
}

/// Records what the form of the caller creates, in the transaction that creates it. Fails with
/// [`Error::IdempotencyConflict`] if the same form has created something already. Does nothing if the caller sent no form.
pub async fn record(
    tx: &mut Tx,
    caller: &Caller,
    created_id: &impl AsRef<str>,
    secret: Option<CreatedSecret<'_>>,
    now: Timestamp,
) -> Result<()> {
    let Some(submission) = &caller.form_submission else { return Ok(()) };
    let FormResultKey { session_id, form_id, .. } = &submission.key;
    let created_id = created_id.as_ref();
    let result = FormResult {
        created_id: created_id.to_owned(),
        sealed: secret.map(|secret| seal(submission, created_id, &secret)),
        shown_at: None,
        created_at: now,
    };
    let inserted = tx.insert_form_result(session_id, form_id, &result).await;
    let inserted = inserted.map_err(|e| match e.is_foreign_key_violation() {
        true => Error::not_found(ResourceRef::Session(session_id.clone())),
        false => e,
    })?;
    if inserted { Ok(()) } else { Err(Error::IdempotencyConflict) }
}

/// Returns the secret of what a form created, and deletes it: it can be taken once, within 60 seconds.
pub async fn take_secret(
    context: &Context,
    key: &FormResultKey,
    created_id: &str,
) -> Result<FormSecret> {
    let now = context.clock.now();
    let FormResultKey { session_id, form_id, .. } = key;
    let mut tx = context.store.begin().await?;
    let found = tx.lock_form_result(session_id, form_id).await?;
    let Some(result) = found.filter(|result| result.created_id == created_id) else {
        return Ok(FormSecret::NotFound);
    };
    if result.shown_at.is_some() {
        return Ok(FormSecret::Shown);
    }
    let is_expired = now >= result.created_at.plus_ms(SECRET_LIFETIME_MS);
    let Some(sealed) = result.sealed.filter(|_| !is_expired) else {
        return Ok(FormSecret::Expired);
    };
    let secret = open(key, created_id, &sealed)
        .ok_or_else(|| Error::Internal("failed to open the secret of a form".into()))?;
    tx.delete_form_secret(session_id, form_id, now).await?;
    tx.commit().await?;
    Ok(FormSecret::Available(secret))
}

/// Deletes secrets that can no longer be shown, and old results: up to `max` of each.
pub async fn prune(context: &Context, max: i64) -> Result<()> {
    let now = context.clock.now();
    let (secrets_until, until) =
        (now.plus_ms(-SECRET_LIFETIME_MS), now.plus_ms(-RESULT_LIFETIME_MS));
    let mut tx = context.store.begin().await?;
    tx.prune_form_results(secrets_until, until, max).await?;
    tx.commit().await.map(drop)
}

fn seal(submission: &FormSubmission, created_id: &str, secret: &CreatedSecret<'_>) -> String {
    let content = json!([secret.plaintext, secret.replaced_expires_at, submission.base_url]);
    submission.key.sealer.seal(content.to_string().as_bytes(), created_id)
}

fn open(key: &FormResultKey, created_id: &str, sealed: &str) -> Option<ShownSecret> {
    let content: Value = serde_json::from_slice(&key.sealer.open(sealed, created_id)?).ok()?;
    let [plaintext, replaced, base_url] = content.as_array()?.as_slice() else { return None };
    Some(ShownSecret {
        plaintext: Plaintext::from(plaintext.as_str()?.to_owned()),
        replaced_expires_at: replaced.as_i64().map(Timestamp),
        base_url: base_url.as_str()?.to_owned(),
    })
}
