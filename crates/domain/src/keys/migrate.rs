//! Migrating keys that were issued elsewhere: their hashes are imported, and each becomes a regular key when it is
//! first verified.

use std::collections::{HashMap, HashSet};

use foundation::clock::Timestamp;
use foundation::error::{Error, ResourceRef, Result};
use foundation::id::{ApiId, KeyId, MigrationId};
use foundation::model::{Algorithm, Api, Key, Migration};
use foundation::secret::{KeyHash, Plaintext, split_prefixed_key};
use serde::Serialize;
use store::freshness;

use super::audit_target;
use super::references::{ImportedKeyFields, ResolvedReferences, require_grants};
use crate::audit::{AuditBatch, AuditEvent, FieldChanges, Target};
use crate::caller::Caller;
use crate::context::Context;
use crate::permission::Action;
use crate::{apis, credits, form_results};

/// The result of a migration request.
#[derive(Debug)]
pub struct MigrationResult {
    /// By hash, in the order of the request.
    pub migrated: Vec<(String, KeyId)>,
    /// The hashes that were not imported, and the reasons.
    pub failed: Vec<(String, ImportRejection)>,
    /// The creation time of the imported keys. No other import into the API by the same migration has it.
    pub imported_at: Timestamp,
}

/// Why a hash was not imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportRejection {
    /// A key in some workspace already has it.
    AlreadyExists,
    /// It occurs earlier in the request.
    Duplicate,
}

/// The fields of the audit entry of an import.
#[derive(Serialize)]
struct ImportSnapshot {
    keys: usize,
    skipped: usize,
}

/// Imports keys of a migration whose hashes are new, all at once. A caller that may create keys in the API may also
/// create the identities, permissions and roles that the keys name.
///
/// The audit log gets one entry, however many keys, which can be undone. It tells how many were left out: those whose hashes
/// exist, and `skipped` more that the caller has left out.
pub async fn migrate(
    context: &Context,
    caller: &Caller,
    migration: &MigrationId,
    api_id: &ApiId,
    keys: Vec<ImportedKeyFields>,
    skipped: usize,
) -> Result<MigrationResult> {
    caller.require_on(Action::CreateKey, api_id)?;
    require_grants(context, caller, keys.iter())?;
    let mut tx = context.store.begin().await?;
    let api = apis::require_not_deleted(tx.find_api(caller.workspace_id(), api_id).await?, api_id)?;
    let found = tx.find_migration(caller.workspace_id(), migration).await?;
    let found = found.ok_or_else(|| Error::not_found(ResourceRef::Migration(migration.clone())))?;
    let now = tx.reserve_import_time(migration, api_id, context.clock.now()).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let references =
        ResolvedReferences::find_or_create(context, &mut tx, caller, &keys, &mut entries).await?;
    let database_now = credits::refill_time(context, tx.load_database_time().await?);
    let (mut incoming, mut hashes) = (Vec::with_capacity(keys.len()), HashSet::new());
    let mut outcomes: Vec<(String, Option<KeyId>)> = Vec::with_capacity(keys.len());
    for key in keys {
        let hash = to_stored_hash(&key.hash, found.algorithm);
        if !hashes.insert(hash.clone()) {
            outcomes.push((key.hash, None));
            continue;
        }
        let new_key = to_new_key(&key, hash, &api, now, database_now);
        outcomes.push((key.hash.clone(), Some(new_key.id.clone())));
        incoming.push(references.attach_to(new_key, key));
    }
    let inserted = tx.insert_keys(caller.workspace_id(), Some(migration), &incoming).await?;
    let inserted: HashSet<KeyId> = inserted.into_iter().collect();
    tx.add_imported_count(migration, i64::try_from(inserted.len()).unwrap_or(i64::MAX)).await?;
    if !inserted.is_empty() {
        let skipped = skipped + (outcomes.len() - inserted.len());
        let change = FieldChanges::created(&ImportSnapshot { keys: inserted.len(), skipped })?;
        entries.add_change(AuditEvent::KeysImported, &import_targets(&found, &api), change);
        // One change row, however many keys.
        tx.record_change(freshness::CacheTag::NewKeys);
    }
    entries.write(&mut tx).await?;
    form_results::record(&mut tx, caller, migration, None, now).await?;
    context.commit(tx).await?;
    context.imported_keys.record(inserted.len());
    Ok(to_result(outcomes, &inserted, now))
}

/// Returns the key without what it refers to.
fn to_new_key(
    key: &ImportedKeyFields,
    hash: String,
    api: &Api,
    now: Timestamp,
    database_now: Timestamp,
) -> Key {
    Key {
        id: KeyId::random(),
        workspace_id: api.workspace_id.clone(),
        api_id: api.id.clone(),
        hash,
        start: key.start.clone().unwrap_or_default(),
        prefix: None,
        byte_length: 16,
        name: None,
        meta: None,
        identity_id: None,
        owner_id: None,
        environment: None,
        is_enabled: key.enabled,
        expires_at: key.expires_at,
        credits: key.credits.map(|credits| credits.to_credits(database_now)),
        created_at: now,
        updated_at: None,
    }
}

/// Returns the targets of an audit entry about a whole import.
pub fn import_targets<'a>(migration: &'a Migration, api: &'a Api) -> [Target<'a>; 2] {
    [
        Target::new("migration", migration.id.as_str()).with_name(migration.name.as_deref()),
        Target::new("api", api.id.as_str()).with_name(Some(&api.name)),
    ]
}

fn to_result(
    outcomes: Vec<(String, Option<KeyId>)>,
    inserted: &HashSet<KeyId>,
    imported_at: Timestamp,
) -> MigrationResult {
    let mut result = MigrationResult { migrated: Vec::new(), failed: Vec::new(), imported_at };
    for (hash, id) in outcomes {
        match id {
            Some(id) if inserted.contains(&id) => result.migrated.push((hash, id)),
            Some(_) => result.failed.push((hash, ImportRejection::AlreadyExists)),
            None => result.failed.push((hash, ImportRejection::Duplicate)),
        }
    }
    result
}

/// Returns those of these hashes, in the form in which the issuer computed them, that cannot be imported into the API,
/// because a key in some workspace already has them.
pub async fn list_used_hashes<'a>(
    context: &Context,
    caller: &Caller,
    api_id: &ApiId,
    algorithm: Algorithm,
    hashes: impl Iterator<Item = &'a str>,
) -> Result<HashSet<&'a str>> {
    caller.require_on(Action::CreateKey, api_id)?;
    let stored: HashMap<_, _> =
        hashes.map(|hash| (to_stored_hash(hash, algorithm), hash)).collect();
    let all: Vec<_> = stored.keys().cloned().collect();
    let used = context.store.read().await?.list_used_hashes(&all).await?;
    Ok(used.iter().filter_map(|hash| stored.get(hash).copied()).collect())
}

/// Converts a hash from hex or base64 into its stored form: base64 for hashes of whole keys, as for regular keys, and
/// hex otherwise.
fn to_stored_hash(hash: &str, algorithm: Algorithm) -> String {
    match (KeyHash::from_hex(hash).or_else(|| KeyHash::from_base64(hash)), algorithm) {
        (Some(hash), Algorithm::Sha256) => hash.to_base64(),
        (Some(hash), Algorithm::PrefixedApiKey) => hash.to_hex(),
        (None, Algorithm::Sha256 | Algorithm::PrefixedApiKey) => hash.to_owned(),
    }
}

/// Turns a pending key of a migration into a regular key, now that it is being verified, if the root key may verify
/// it. Returns whether the key may exist now.
pub async fn adopt_pending_key(
    context: &Context,
    caller: &Caller,
    id: &MigrationId,
    key: &str,
) -> Result<bool> {
    let mut reader = context.store.read().await?;
    let migration = reader.find_migration(caller.workspace_id(), id).await?;
    match migration.map(|migration| migration.algorithm) {
        // The hash is that of the whole key, so the key would have been found.
        None | Some(Algorithm::Sha256) => return Ok(false),
        Some(Algorithm::PrefixedApiKey) => {}
    }
    if key.contains('\0') {
        // No stored key contains one.
        return Ok(false);
    }
    let (prefix, _, long) = split_prefixed_key(key).ok_or_else(malformed_key)?;
    let pending = reader.find_waiting_key(id, &KeyHash::compute(long).to_hex()).await?;
    drop(reader);
    let hash = KeyHash::compute(key);
    let key_id = match pending {
        Some((key_id, api)) if caller.is_allowed_on(Action::VerifyKey, &api) => key_id,
        Some(_) => return Ok(false),
        None => return has_adopted(context, &hash).await,
    };
    let start = Plaintext::from(key.to_owned()).start(Some(prefix));
    let mut tx = context.store.begin().await?;
    let is_adopted = match tx.adopt_key(&key_id, &hash.to_base64(), &start, prefix).await {
        Err(e) if e.is_unique_violation_of("keys_hash_unique") => false,
        outcome => outcome?,
    };
    if !is_adopted {
        drop(tx);
        return has_adopted(context, &hash).await;
    }
    let Some(stored) = tx.find_key(caller.workspace_id(), &key_id).await? else { return Ok(false) };
    let mut entries = AuditBatch::for_caller(caller, context.clock.now());
    entries.add(AuditEvent::KeyImported, &[audit_target(&stored.key)]);
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Key(key_id));
    tx.record_change(freshness::CacheTag::NewKey(hash.fingerprint()));
    context.commit(tx).await?;
    Ok(true)
}

/// Returns whether another request has just adopted the key, which the caches of this replica may not reflect yet.
async fn has_adopted(context: &Context, hash: &KeyHash) -> Result<bool> {
    let exists = context.store.read().await?.find_key_by_hash(&hash.to_base64()).await?.is_some();
    if exists {
        context.freshness.record_invalidation(&freshness::CacheTag::NewKey(hash.fingerprint()));
    }
    Ok(exists)
}

fn malformed_key() -> Error {
    Error::MalformedKey
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_hash_is_the_same_when_written_in_hex_or_base64() {
        let (own, hex) = (KeyHash::compute("abc").to_base64(), KeyHash::compute("abc").to_hex());

        assert_eq!(to_stored_hash(&hex, Algorithm::Sha256), own);
        assert_eq!(to_stored_hash(&hex.to_uppercase(), Algorithm::Sha256), own);
        assert_eq!(to_stored_hash(&own, Algorithm::Sha256), own);
        assert_eq!(to_stored_hash(&hex.to_uppercase(), Algorithm::PrefixedApiKey), hex);
        assert_eq!(to_stored_hash(&own, Algorithm::PrefixedApiKey), hex);
    }
}
