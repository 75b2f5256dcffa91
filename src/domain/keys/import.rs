//! Taking in keys that were issued elsewhere, by their hashes or themselves, under the names of permissions and
//! roles that are there.

use std::collections::{BTreeSet, HashMap, HashSet};

use foundation::error::{Error, Result, Subject};
use foundation::id::{ApiId, KeyId};
use foundation::model::Key;
use foundation::secret::Plaintext;
use store::{Tx, freshness};

use super::super::audit::AuditBatch;
use super::super::caller::Caller;
use super::super::permission::Action;
use super::super::{apis, credits, vault};
use super::references::{ImportedKeyFields, ResolvedReferences, require_grants};
use crate::app::App;

/// How many characters of a key are shown, where its start was not given.
const START_LENGTH: usize = 4;

/// A key as it is brought, with what only whoever issued it can know.
#[derive(Debug)]
pub struct KeyImport {
    pub api_id: ApiId,
    /// The key itself. Absent: only its hash is known.
    pub plaintext: Option<Plaintext>,
    /// Its leading characters that may be shown.
    pub start: Option<String>,
    /// The customer's own name for the user, of whom no identity is made.
    pub owner_id: Option<String>,
    pub environment: Option<String>,
    pub key: ImportedKeyFields,
}

/// What is done about a key that is there already, or twice in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuplicatePolicy {
    /// Nothing is taken in.
    Refused,
    /// The others are taken in.
    Skip,
}

/// Takes in keys; their ids, in the order of the request. A key that is brought itself is kept sealed too, where
/// its API keeps recoverable keys. `api` is one that must be there even where no key is of it.
pub async fn import(
    app: &App,
    caller: &Caller,
    api: Option<&ApiId>,
    keys: Vec<KeyImport>,
    doubles: DuplicatePolicy,
) -> Result<Vec<KeyId>> {
    let apis: BTreeSet<_> = keys.iter().map(|key| &key.api_id).chain(api).collect();
    for id in &apis {
        caller.require_on(Action::CreateKey, *id)?;
    }
    for key in keys.iter().filter(|key| key.plaintext.is_some()) {
        caller.require_on(Action::EncryptKey, &key.api_id)?;
    }
    require_grants(app, caller, keys.iter().map(|brought| &brought.key))?;
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let recoverable = recoverable(&mut tx, caller, apis).await?;
    let bank_now = credits::refill_time(app, tx.now().await?);
    let count = keys.len();
    let (mut known, mut secrets, mut imported) = (Vec::new(), HashMap::new(), Vec::new());
    for brought in keys {
        let KeyImport { api_id, plaintext, start, owner_id, environment, key } = brought;
        let blank = Key {
            id: KeyId::random(),
            workspace_id: caller.workspace().clone(),
            hash: key.hash.clone(),
            start: start.unwrap_or_else(|| plaintext.as_ref().map_or_else(String::new, shown)),
            prefix: None,
            byte_length: 16,
            name: None,
            meta: None,
            identity_id: None,
            owner_id,
            environment,
            enabled: key.enabled,
            expires_at: key.expires_at,
            credits: key.credits.map(|credits| credits.open(bank_now)),
            created_at: now,
            updated_at: None,
            api_id,
        };
        if let Some(secret) = plaintext.filter(|_| recoverable.contains(&blank.api_id)) {
            secrets.insert(blank.id.clone(), secret);
        }
        known.push(blank);
        imported.push(key);
    }
    let mut entries = AuditBatch::for_caller(caller, now);
    let named = ResolvedReferences::existing(&mut tx, caller, &imported, &mut entries, now).await?;
    let mut hashes = HashSet::new();
    let keys = known.into_iter().zip(imported).map(|(key, from)| named.attach_to(key, from));
    let incoming: Vec<_> = keys.filter(|key| hashes.insert(key.key.hash.clone())).collect();
    let made = tx.insert_keys(caller.workspace(), None, &incoming).await?;
    if made.len() < count && doubles == DuplicatePolicy::Refused {
        return Err(Error::Taken(Subject::Secret));
    }
    let made: HashSet<KeyId> = made.into_iter().collect();
    for incoming in incoming.iter().filter(|incoming| made.contains(&incoming.key.id)) {
        named.record(&mut entries, incoming);
    }
    if !made.is_empty() {
        // One row, however many there are.
        tx.changed(freshness::CacheTag::NewKeys);
    }
    let sealed: Vec<_> = secrets.iter().filter(|(id, _)| made.contains(*id)).collect();
    vault::seal(app, &mut tx, caller.workspace(), &sealed, now).await?;
    entries.write(&mut tx).await?;
    app.commit(tx).await?;
    let ids = incoming.into_iter().map(|incoming| incoming.key.id);
    Ok(ids.filter(|id| made.contains(id)).collect())
}

/// Those of these APIs that keep sealed copies. Each must exist.
async fn recoverable(tx: &mut Tx, caller: &Caller, ids: BTreeSet<&ApiId>) -> Result<Vec<ApiId>> {
    let mut recoverable = Vec::new();
    for id in ids {
        let api = apis::require_not_deleted(tx.api(caller.workspace(), id).await?, id)?;
        if api.settings.recoverable_keys {
            recoverable.push(api.id);
        }
    }
    Ok(recoverable)
}

fn shown(secret: &Plaintext) -> String {
    secret.leading(START_LENGTH)
}
