//! Creating a key.

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, ResourceRef, Result};
use foundation::id::{ApiId, KeyId};
use foundation::model::{Api, Credits, Key, Meta, Refill};
use foundation::secret::Plaintext;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{LimitOwner, Tx, freshness};

use super::assignments::{require_assignable, set_assigned};
use super::metering::Metering;
use super::references::ensure_identity;
use super::snapshot::KeySnapshot;
use super::{audit_meta, audit_target, to_ratelimits};
use crate::audit::{AuditBatch, AuditEvent, FieldChanges};
use crate::caller::Caller;
use crate::context::Context;
use crate::form_results::{self, CreatedSecret};
use crate::idempotency::{StoredReply, run_idempotent, store_reply};
use crate::permission::Action;
use crate::rbac::{self, Selector};
use crate::{apis, credits, refill, vault};

/// The number of random bytes of a key if neither the request nor the API sets one.
const BYTE_LENGTH_DEFAULT: u8 = 16;

/// A request to create a key.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub api_id: ApiId,
    /// Absent: the API's default. Empty: no prefix.
    pub prefix: Option<String>,
    /// The number of leading characters shown of a key without a prefix.
    pub unprefixed_start_length: usize,
    pub name: Option<String>,
    /// Absent: the API's default, or 16.
    pub byte_length: Option<u8>,
    pub external_id: Option<String>,
    pub meta: Option<Meta>,
    /// The customer's own label.
    pub environment: Option<String>,
    /// Names; each must exist.
    pub roles: Vec<String>,
    pub permissions: Vec<Selector>,
    pub expires_at: Option<Timestamp>,
    pub credits: Option<NewCredits>,
    pub ratelimits: Vec<NewRatelimit>,
    pub enabled: bool,
    pub is_recoverable: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct NewCredits {
    pub balance: i64,
    pub refill: Option<Refill>,
}

impl NewCredits {
    /// Returns the initial state of the credit account. The first refill is that of the next period.
    pub fn to_credits(self, now: Timestamp) -> Credits {
        let refilled = self.refill.map_or(0, |refill| refill::period(&refill, now));
        Credits {
            balance: self.balance,
            last_lease_number: 0,
            refill: self.refill,
            refilled_period: refilled,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewRatelimit {
    pub name: String,
    pub limit: i64,
    #[serde(rename = "duration")]
    pub duration_ms: i64,
    pub auto_apply: bool,
    #[serde(rename = "async")]
    pub is_async: bool,
}

/// Fails unless the API stores sealed copies of its keys.
pub fn require_recoverable(api: &Api) -> Result<()> {
    match api.settings.allows_recoverable_keys {
        true => Ok(()),
        false => Err(Error::PreconditionFailed(Refusal::RecoverableKeysDisabled(api.id.clone()))),
    }
}

/// A new key. Its plaintext is stored nowhere else.
#[derive(Debug)]
pub struct IssuedKey {
    pub id: KeyId,
    pub plaintext: Plaintext,
}

impl StoredReply for IssuedKey {
    fn to_json(&self) -> Value {
        json!([self.id, self.plaintext])
    }

    fn from_json(stored: &Value) -> Option<Self> {
        let [id, plaintext] = stored.as_array()?.as_slice() else { return None };
        let plaintext = Plaintext::from(plaintext.as_str()?.to_owned());
        Some(Self { id: KeyId::from(id.as_str()?), plaintext })
    }
}

/// Creates a key. Without the permission, the API is reported as not found.
pub async fn create(context: &Context, caller: &Caller, new: NewKey) -> Result<IssuedKey> {
    run_idempotent(context, caller, || create_once(context, caller, new.clone())).await
}

fn api_not_found(id: &ApiId) -> Error {
    Error::not_found(ResourceRef::Api(id.clone()))
}

/// Returns the API of a new key, after checking that it accepts the key.
async fn load_api(context: &Context, tx: &mut Tx, caller: &Caller, new: &NewKey) -> Result<Api> {
    if context.settings.security.strict_grants {
        require_assignable(caller, !new.permissions.is_empty(), !new.roles.is_empty())?;
    }
    let api = apis::require_not_deleted(
        tx.find_api(caller.workspace_id(), &new.api_id).await?,
        &new.api_id,
    )?;
    if new.is_recoverable {
        vault::require_master_keys(context)?;
        if !caller.is_allowed_on(Action::EncryptKey, &new.api_id) {
            return Err(api_not_found(&new.api_id));
        }
        require_recoverable(&api)?;
    }
    Ok(api)
}

async fn create_once(context: &Context, caller: &Caller, new: NewKey) -> Result<IssuedKey> {
    if !caller.is_allowed_on(Action::CreateKey, &new.api_id) {
        return Err(api_not_found(&new.api_id));
    }
    let now = context.clock.now();
    let (mut tx, mut entries) = (context.store.begin().await?, AuditBatch::for_caller(caller, now));
    let api = load_api(context, &mut tx, caller, &new).await?;
    // An empty prefix means none.
    let prefix = new.prefix.or(api.settings.default_prefix).filter(|prefix| !prefix.is_empty());
    let byte_length =
        new.byte_length.or(api.settings.default_byte_length).unwrap_or(BYTE_LENGTH_DEFAULT);
    let secret = Plaintext::generate(prefix.as_deref(), byte_length);
    let hash = secret.hash();
    // Before permissions and roles, as wherever a key is written, so that two transactions do not deadlock.
    let identity_id = match &new.external_id {
        Some(id) => Some(ensure_identity(context, &mut tx, caller, id, now).await?),
        None => None,
    };
    let (roles, permissions) = rbac::resolve_existing_roles_and_permissions(
        &mut tx,
        caller,
        new.roles,
        new.permissions,
        &mut entries,
        now,
    )
    .await?;
    let database_now = credits::refill_time(context, tx.load_database_time().await?);
    let key = Key {
        id: KeyId::random(),
        workspace_id: caller.workspace_id().clone(),
        api_id: new.api_id,
        hash: hash.to_base64(),
        start: displayed_start(&secret, prefix.as_deref(), new.unprefixed_start_length),
        prefix,
        byte_length,
        name: new.name,
        meta: new.meta,
        identity_id,
        owner_id: new.external_id,
        environment: new.environment,
        is_enabled: new.enabled,
        expires_at: new.expires_at,
        credits: new.credits.map(|credits| credits.to_credits(database_now)),
        created_at: now,
        updated_at: None,
    };
    tx.insert_key(&key).await?;
    if new.is_recoverable {
        vault::seal(context, &mut tx, caller.workspace_id(), &[(&key.id, &secret)], now).await?;
    }
    let limits = to_ratelimits(new.ratelimits);
    if !limits.is_empty() {
        tx.replace_ratelimits(caller.workspace_id(), LimitOwner::Key(&key.id), &limits).await?;
    }
    let metering = Metering::from_account(key.credits, None, database_now);
    let state = KeySnapshot::from_key(&key, &limits).with_credits(metering);
    let targets = [audit_target(&key).with_meta(audit_meta::for_new_key(new.credits.as_ref()))];
    entries.add_change(AuditEvent::KeyCreated, &targets, FieldChanges::created(&state)?);
    if !permissions.is_empty() {
        set_assigned(&mut tx, &mut entries, &key, &[], &permissions).await?;
    }
    if !roles.is_empty() {
        set_assigned(&mut tx, &mut entries, &key, &[], &roles).await?;
    }
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::NewKey(hash.fingerprint()));
    let issued = IssuedKey { id: key.id, plaintext: secret };
    record_issued(&mut tx, caller, &issued, None, now).await?;
    context.commit(tx).await?;

    Ok(issued)
}

/// Records a new key, in the transaction that creates it, for a caller that sends the same request again.
/// `replaced_expires_at`: when the key that it replaces expires.
pub async fn record_issued(
    tx: &mut Tx,
    caller: &Caller,
    issued: &IssuedKey,
    replaced_expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<()> {
    store_reply(tx, caller, issued).await?;
    let secret = CreatedSecret { plaintext: &issued.plaintext, replaced_expires_at };
    form_results::record(tx, caller, &issued.id, Some(secret), now).await
}

fn displayed_start(secret: &Plaintext, prefix: Option<&str>, bare: usize) -> String {
    match prefix {
        Some(_) => secret.start(prefix),
        None => secret.leading_chars(bare),
    }
}
