//! Issuing a key.

use super::super::audit::Entries;
use super::super::caller::Caller;
use super::super::permission::Action;
use super::super::{apis, credits, rbac, refill};
use super::{ratelimits, set_permissions, set_roles, target};
use crate::app::App;
use crate::clock::Timestamp;
use crate::error::{Error, Refusal, Result, Subject};
use crate::id::{ApiId, KeyId};
use crate::model::{Credits, Key, Meta, Refill};
use crate::secret::Plaintext;
use crate::store::{Owner, freshness};

/// A key as it is asked for.
#[derive(Debug)]
pub struct NewKey {
    pub api_id: ApiId,
    pub prefix: Option<String>,
    pub name: Option<String>,
    pub byte_length: u8,
    pub external_id: Option<String>,
    pub meta: Option<Meta>,
    /// Names; each must exist.
    pub roles: Vec<String>,
    /// Slugs; each must exist.
    pub permissions: Vec<String>,
    pub expires_at: Option<Timestamp>,
    pub credits: Option<NewCredits>,
    pub ratelimits: Vec<NewRatelimit>,
    pub enabled: bool,
    pub recoverable: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct NewCredits {
    pub balance: i64,
    pub refill: Option<Refill>,
}

impl NewCredits {
    /// As the bank opens the account: the next refill is that of the next period.
    pub fn open(self, now: Timestamp) -> Credits {
        let refilled = self.refill.map_or(0, |refill| refill::period(&refill, now));
        Credits { balance: self.balance, version: 0, refill: self.refill, refilled }
    }
}

#[derive(Debug)]
pub struct NewRatelimit {
    pub name: String,
    pub limit: i64,
    pub duration_ms: i64,
    pub auto_apply: bool,
}

/// A new key. Its plaintext is nowhere else.
#[derive(Debug)]
pub struct IssuedKey {
    pub id: KeyId,
    pub plaintext: Plaintext,
}

/// Issues a key. Who may not is told that the API does not exist.
pub async fn create(app: &App, caller: &Caller, new: NewKey) -> Result<IssuedKey> {
    let no_such_api = || Error::not_found(Subject::Api(new.api_id.clone()));
    if !caller.may_on(Action::CreateKey, &new.api_id) {
        return Err(no_such_api());
    }
    let now = app.clock.now();
    let secret = Plaintext::random(new.prefix.as_deref(), new.byte_length);
    let hash = secret.hash();

    let mut tx = app.store.begin().await?;
    apis::live(tx.api(caller.workspace(), &new.api_id).await?, &new.api_id)?;
    if new.recoverable {
        return Err(Error::Refused(Refusal::NoVault));
    }
    let (roles, permissions) = rbac::existing(&mut tx, caller, new.roles, new.permissions).await?;
    let identity_id = match &new.external_id {
        Some(id) => Some(tx.ensure_identity(caller.workspace(), id, now).await?),
        None => None,
    };
    let bank_now = credits::now(app, tx.now().await?);
    let key = Key {
        id: KeyId::random(),
        workspace_id: caller.workspace().clone(),
        api_id: new.api_id,
        hash: hash.base64(),
        start: secret.start(new.prefix.as_deref()),
        prefix: new.prefix,
        byte_length: new.byte_length,
        name: new.name,
        meta: new.meta,
        identity_id,
        enabled: new.enabled,
        expires_at: new.expires_at,
        credits: new.credits.map(|credits| credits.open(bank_now)),
        created_at: now,
        updated_at: None,
    };
    tx.insert_key(&key).await?;
    let limits = ratelimits(new.ratelimits);
    if !limits.is_empty() {
        tx.set_ratelimits(caller.workspace(), Owner::Key(&key.id), &limits).await?;
    }
    let mut entries = Entries::of(caller, now);
    entries.add("key.create", &[target(&key)]);
    if !permissions.is_empty() {
        set_permissions(&mut tx, &mut entries, &key, &[], &permissions).await?;
    }
    if !roles.is_empty() {
        set_roles(&mut tx, &mut entries, &key, &[], &roles).await?;
    }
    entries.write(&mut tx).await?;
    tx.changed(freshness::Subject::NewKey(hash.fingerprint()));
    app.commit(tx).await?;

    Ok(IssuedKey { id: key.id, plaintext: secret })
}
