//! Importing keys that were issued elsewhere, by plaintext or by hash, with the names of existing permissions and
//! roles.

use std::collections::{BTreeSet, HashMap, HashSet};

use foundation::error::{Error, ResourceRef, Result};
use foundation::id::{ApiId, KeyId};
use foundation::model::Key;
use foundation::secret::Plaintext;
use store::{Tx, freshness};

use super::references::{ImportedKeyFields, ResolvedReferences, require_grants};
use crate::audit::AuditBatch;
use crate::caller::Caller;
use crate::context::Context;
use crate::permission::Action;
use crate::{apis, credits, vault};

/// The number of leading characters shown of a key if the import does not give its start.
const START_LENGTH: usize = 4;

/// A key to import, with the data that only its original issuer has.
#[derive(Debug)]
pub struct KeyImport {
    pub api_id: ApiId,
    /// The plaintext. Absent: only the hash is known.
    pub plaintext: Option<Plaintext>,
    /// The customer's own id of the end user, for whom no identity is created.
    pub owner_id: Option<String>,
    pub key: ImportedKeyFields,
}

/// The handling of keys that already exist, or that occur twice in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuplicatePolicy {
    /// No key is imported.
    Reject,
    /// The other keys are imported.
    Skip,
}

/// Imports keys and returns their ids, in the order of the request. A plaintext is also stored sealed if its API has
/// recoverable keys. `api` must exist even if no key belongs to it.
pub async fn import(
    context: &Context,
    caller: &Caller,
    api: Option<&ApiId>,
    keys: Vec<KeyImport>,
    duplicates: DuplicatePolicy,
) -> Result<Vec<KeyId>> {
    let apis: BTreeSet<_> = keys.iter().map(|key| &key.api_id).chain(api).collect();
    for id in &apis {
        caller.require_on(Action::CreateKey, *id)?;
    }
    for key in keys.iter().filter(|key| key.plaintext.is_some()) {
        caller.require_on(Action::EncryptKey, &key.api_id)?;
    }
    require_grants(context, caller, keys.iter().map(|import| &import.key))?;
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let recoverable = list_recoverable_apis(&mut tx, caller, apis).await?;
    let database_now = credits::refill_time(context, tx.load_database_time().await?);
    let count = keys.len();
    let (mut new_keys, mut secrets, mut imported) = (Vec::new(), HashMap::new(), Vec::new());
    for import in keys {
        let KeyImport { api_id, plaintext, owner_id, key } = import;
        let blank = Key {
            id: KeyId::random(),
            workspace_id: caller.workspace_id().clone(),
            hash: key.hash.clone(),
            start: find_start(&key, plaintext.as_ref()),
            prefix: None,
            byte_length: 16,
            name: None,
            meta: None,
            identity_id: None,
            owner_id,
            environment: None,
            is_enabled: key.enabled,
            expires_at: key.expires_at,
            credits: key.credits.map(|credits| credits.to_credits(database_now)),
            created_at: now,
            updated_at: None,
            api_id,
        };
        if let Some(secret) = plaintext.filter(|_| recoverable.contains(&blank.api_id)) {
            secrets.insert(blank.id.clone(), secret);
        }
        new_keys.push(blank);
        imported.push(key);
    }
    let mut entries = AuditBatch::for_caller(caller, now);
    let references =
        ResolvedReferences::require_existing(context, &mut tx, caller, &imported, &mut entries)
            .await?;
    let mut hashes = HashSet::new();
    let keys =
        new_keys.into_iter().zip(imported).map(|(key, from)| references.attach_to(key, from));
    let incoming: Vec<_> = keys.filter(|key| hashes.insert(key.key.hash.clone())).collect();
    let inserted = tx.insert_keys(caller.workspace_id(), None, &incoming).await?;
    if inserted.len() < count && duplicates == DuplicatePolicy::Reject {
        return Err(Error::AlreadyExists(ResourceRef::GivenKey));
    }
    let inserted: HashSet<KeyId> = inserted.into_iter().collect();
    for incoming in incoming.iter().filter(|incoming| inserted.contains(&incoming.key.id)) {
        references.record(&mut entries, incoming, database_now)?;
    }
    if !inserted.is_empty() {
        // One change row, however many keys.
        tx.record_change(freshness::CacheTag::NewKeys);
    }
    let sealed: Vec<_> = secrets.iter().filter(|(id, _)| inserted.contains(*id)).collect();
    vault::seal(context, &mut tx, caller.workspace_id(), &sealed, now).await?;
    entries.write(&mut tx).await?;
    context.commit(tx).await?;
    context.imported_keys.record(inserted.len());
    let ids = incoming.into_iter().map(|incoming| incoming.key.id);
    Ok(ids.filter(|id| inserted.contains(id)).collect())
}

/// Returns the APIs among these that store sealed copies. Each must exist.
async fn list_recoverable_apis(
    tx: &mut Tx,
    caller: &Caller,
    ids: BTreeSet<&ApiId>,
) -> Result<Vec<ApiId>> {
    let mut recoverable = Vec::new();
    for id in ids {
        let api = apis::require_not_deleted(tx.find_api(caller.workspace_id(), id).await?, id)?;
        if api.settings.allows_recoverable_keys {
            recoverable.push(api.id);
        }
    }
    Ok(recoverable)
}

/// Returns the leading characters that may be shown.
fn find_start(key: &ImportedKeyFields, plaintext: Option<&Plaintext>) -> String {
    let leading = || plaintext.map(|secret| secret.leading_chars(START_LENGTH));
    key.start.clone().or_else(leading).unwrap_or_default()
}
