//! Keys that were issued elsewhere: taking in their hashes, and making them our own when they are first shown.

use std::collections::HashSet;

use foundation::error::{Error, Result, Subject};
use foundation::id::{ApiId, KeyId, MigrationId};
use foundation::model::{Algorithm, Key};
use foundation::secret::{KeyHash, Plaintext, prefixed_parts};
use store::freshness;

use super::super::audit::AuditBatch;
use super::super::caller::Caller;
use super::super::permission::Action;
use super::super::{apis, credits};
use super::references::{ImportedKeyFields, ResolvedReferences, require_grants};
use super::target;
use crate::app::App;

/// What came of it.
#[derive(Debug, Default)]
pub struct MigrationResult {
    /// By hash, in the order of the request.
    pub migrated: Vec<(String, KeyId)>,
    /// Hashes that were not taken in, and why.
    pub failed: Vec<(String, ImportRejection)>,
}

/// Why a hash is not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportRejection {
    /// A key has it already, in whatever workspace.
    Known,
    /// It stands in the request before.
    Twice,
}

/// Takes in keys of a migration: those whose hash is new, all at once. Who may create keys in the API may bring
/// along the identities, permissions and roles that they name.
pub async fn migrate(
    app: &App,
    caller: &Caller,
    migration: &MigrationId,
    api_id: &ApiId,
    keys: Vec<ImportedKeyFields>,
) -> Result<MigrationResult> {
    caller.require_on(Action::CreateKey, api_id)?;
    require_grants(app, caller, keys.iter())?;
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    apis::require_not_deleted(tx.api(caller.workspace(), api_id).await?, api_id)?;
    let known = tx.migration(caller.workspace(), migration).await?;
    let known = known.ok_or_else(|| Error::not_found(Subject::Migration(migration.clone())))?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let is_strict = app.settings.security.strict_grants;
    let named =
        ResolvedReferences::ensure(&mut tx, caller, &keys, is_strict, &mut entries, now).await?;
    let bank_now = credits::refill_time(app, tx.now().await?);
    let (mut incoming, mut hashes) = (Vec::with_capacity(keys.len()), HashSet::new());
    let mut told: Vec<(String, Option<KeyId>)> = Vec::with_capacity(keys.len());
    for key in keys {
        let hash = as_kept(&key.hash, known.algorithm);
        if !hashes.insert(hash.clone()) {
            told.push((key.hash, None));
            continue;
        }
        let id = KeyId::random();
        told.push((key.hash.clone(), Some(id.clone())));
        let fixed = Key {
            id,
            workspace_id: caller.workspace().clone(),
            api_id: api_id.clone(),
            hash,
            start: String::new(),
            prefix: None,
            byte_length: 16,
            name: None,
            meta: None,
            identity_id: None,
            owner_id: None,
            environment: None,
            enabled: key.enabled,
            expires_at: key.expires_at,
            credits: key.credits.map(|credits| credits.open(bank_now)),
            created_at: now,
            updated_at: None,
        };
        incoming.push(named.attach_to(fixed, key));
    }
    let made = tx.insert_keys(caller.workspace(), Some(migration), &incoming).await?;
    let made: HashSet<KeyId> = made.into_iter().collect();
    tx.count_migrated(migration, i64::try_from(made.len()).unwrap_or(i64::MAX)).await?;
    for incoming in incoming.iter().filter(|incoming| made.contains(&incoming.key.id)) {
        named.record(&mut entries, incoming);
    }
    if !made.is_empty() {
        // One row, however many there are.
        tx.changed(freshness::CacheTag::NewKeys);
    }
    entries.write(&mut tx).await?;
    app.commit(tx).await?;

    let mut outcome = MigrationResult::default();
    for (hash, id) in told {
        match id {
            Some(id) if made.contains(&id) => outcome.migrated.push((hash, id)),
            Some(_) => outcome.failed.push((hash, ImportRejection::Known)),
            None => outcome.failed.push((hash, ImportRejection::Twice)),
        }
    }
    Ok(outcome)
}

/// A hash as it is looked up, in base64 or in hex, however it was written: that of whole keys as our own are.
fn as_kept(hash: &str, algorithm: Algorithm) -> String {
    match (KeyHash::from_hex(hash).or_else(|| KeyHash::from_base64(hash)), algorithm) {
        (Some(hash), Algorithm::Sha256) => hash.base64(),
        (Some(hash), Algorithm::PrefixedApiKey) => hash.hex(),
        (None, Algorithm::Sha256 | Algorithm::PrefixedApiKey) => hash.to_owned(),
    }
}

/// Makes a key that waits in a migration our own, now that it has been shown, if the root key may verify it.
/// Whether it may be there now.
pub async fn adopt(app: &App, caller: &Caller, id: &MigrationId, key: &str) -> Result<bool> {
    let mut reader = app.store.read().await?;
    let migration = reader.migration(caller.workspace(), id).await?;
    match migration.map(|migration| migration.algorithm) {
        // Its hash is that of the whole key: it would have been found.
        None | Some(Algorithm::Sha256) => return Ok(false),
        Some(Algorithm::PrefixedApiKey) => {}
    }
    if key.contains('\0') {
        // Nothing that is kept has one.
        return Ok(false);
    }
    let (prefix, _, long) = prefixed_parts(key).ok_or_else(too_few_parts)?;
    let waiting = reader.waiting_key(id, &KeyHash::of(long).hex()).await?;
    drop(reader);
    let hash = KeyHash::of(key);
    let key_id = match waiting {
        Some((key_id, api)) if caller.may_on(Action::VerifyKey, &api) => key_id,
        Some(_) => return Ok(false),
        None => return was_adopted(app, &hash).await,
    };
    let start = Plaintext::from(key.to_owned()).start(Some(prefix));
    let mut tx = app.store.begin().await?;
    let is_adopted = match tx.adopt_key(&key_id, &hash.base64(), &start, prefix).await {
        Err(e) if e.violates("keys_hash_unique") => false,
        outcome => outcome?,
    };
    if !is_adopted {
        drop(tx);
        return was_adopted(app, &hash).await;
    }
    let Some(stored) = tx.key(caller.workspace(), &key_id).await? else { return Ok(false) };
    let mut entries = AuditBatch::for_caller(caller, app.clock.now());
    entries.add("key.migrate", &[target(&stored.key)]);
    entries.write(&mut tx).await?;
    tx.changed(freshness::CacheTag::Key(key_id));
    tx.changed(freshness::CacheTag::NewKey(hash.fingerprint()));
    app.commit(tx).await?;
    Ok(true)
}

/// Whether another request has just made it our own, which the caches here may not have heard of yet.
async fn was_adopted(app: &App, hash: &KeyHash) -> Result<bool> {
    let is_there = app.store.read().await?.key_by_hash(&hash.base64()).await?.is_some();
    if is_there {
        app.freshness.record_invalidation(&freshness::CacheTag::NewKey(hash.fingerprint()));
    }
    Ok(is_there)
}

fn too_few_parts() -> Error {
    Error::MalformedKey
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_in_hex_is_kept_as_our_own_are() {
        let (own, hex) = (KeyHash::of("abc").base64(), KeyHash::of("abc").hex());

        assert_eq!(as_kept(&hex, Algorithm::Sha256), own);
        assert_eq!(as_kept(&hex.to_uppercase(), Algorithm::Sha256), own);
        assert_eq!(as_kept(&own, Algorithm::Sha256), own);
        assert_eq!(as_kept(&hex.to_uppercase(), Algorithm::PrefixedApiKey), hex);
        assert_eq!(as_kept(&own, Algorithm::PrefixedApiKey), hex);
    }
}
