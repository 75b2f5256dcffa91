//! Rerolling a key: a new secret with the same configuration.

use foundation::clock::{MINUTE_MS, Timestamp};
use foundation::error::{Error, Refusal, Result};
use foundation::id::{KeyId, RatelimitId};
use foundation::model::{Credits, Key, Ratelimit};
use foundation::secret::Plaintext;
use store::{LimitOwner, Tx, freshness};

use super::assignments::require_assignable;
use super::create::{record_issued, require_recoverable};
use super::{IssuedKey, audit_target, lock_existing};
use crate::audit::{AuditBatch, AuditEvent};
use crate::caller::Caller;
use crate::context::Context;
use crate::idempotency::run_idempotent;
use crate::keys::Keys;
use crate::permission::Action;
use crate::{apis, credits, refill, vault};

/// Creates a key with the same configuration. The old key expires `grace_ms` from now, rounded up to a full minute;
/// at once with 0, and never later than before. The new key has the same prefix, length, identity, limits,
/// permissions and roles, and the remaining credits, but no usage of limits. Fails if the old key has expired.
pub async fn reroll(keys: &Keys, caller: &Caller, id: &KeyId, grace_ms: i64) -> Result<IssuedKey> {
    run_idempotent(&keys.context, caller, || {
        credits::run_with_closed_leases(&keys.ledger, id, || {
            reroll_once(&keys.context, caller, id, grace_ms)
        })
    })
    .await
}

async fn reroll_once(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    grace_ms: i64,
) -> Result<IssuedKey> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let stored = lock_existing(&mut tx, caller, id).await?;
    let mut old = stored.key;
    caller.require_on(Action::CreateKey, &old.api_id)?;
    if context.settings.security.strict_grants {
        require_assignable(caller, !stored.permissions.is_empty(), !stored.role_ids.is_empty())?;
    }
    require_not_expired(&old, now)?;
    let is_recoverable =
        !tx.list_sealed_keys(caller.workspace_id(), std::slice::from_ref(id)).await?.is_empty();
    if is_recoverable {
        vault::require_master_keys(context)?;
        caller.require_on(Action::EncryptKey, &old.api_id)?;
        require_recoverable(&apis::require_not_deleted(
            tx.find_api(caller.workspace_id(), &old.api_id).await?,
            &old.api_id,
        )?)?;
    }
    let secret = Plaintext::generate(old.prefix.as_deref(), old.byte_length);
    let hash = secret.hash();
    let new = Key {
        id: KeyId::random(),
        hash: hash.to_base64(),
        start: secret.start(old.prefix.as_deref()),
        credits: detach_remaining_credits(context, &mut tx, id, grace_ms == 0).await?,
        created_at: now,
        updated_at: None,
        ..old.clone()
    };
    tx.insert_key(&new).await?;
    if let (None, Some(refill)) = (&new.credits, &stored.refill) {
        tx.set_refill(&new.id, refill).await?;
    }
    if is_recoverable {
        vault::seal(context, &mut tx, caller.workspace_id(), &[(&new.id, &secret)], now).await?;
    }
    let with_new_id = |limit: Ratelimit| Ratelimit { id: RatelimitId::random(), ..limit };
    let limits: Vec<_> = stored.ratelimits.into_iter().map(with_new_id).collect();
    if !limits.is_empty() {
        tx.replace_ratelimits(caller.workspace_id(), LimitOwner::Key(&new.id), &limits).await?;
    }
    let permissions: Vec<_> = stored.permissions.into_iter().map(|p| p.id).collect();
    tx.set_key_permissions(&new.id, &permissions).await?;
    tx.set_key_roles(&new.id, &stored.role_ids).await?;
    let expires_at = grace_end(now, grace_ms);
    old.expires_at = Some(old.expires_at.map_or(expires_at, |expires| expires.min(expires_at)));
    old.updated_at = None;
    tx.update_key(&old).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add(AuditEvent::KeyRotated, &[audit_target(&old), audit_target(&new)]);
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Key(id.clone()));
    tx.record_change(freshness::CacheTag::NewKey(hash.fingerprint()));
    let issued = IssuedKey { id: new.id, plaintext: secret };
    record_issued(&mut tx, caller, &issued, old.expires_at, now).await?;
    context.commit(tx).await?;

    Ok(issued)
}

/// Fails if the key has expired: the new key would expire at the same time.
fn require_not_expired(key: &Key, now: Timestamp) -> Result<()> {
    match key.expires_at {
        Some(at) if at < now => {
            Err(Error::PreconditionFailed(Refusal::KeyExpired { key: key.id.clone(), at }))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the expiration time of the old key.
fn grace_end(now: Timestamp, grace_ms: i64) -> Timestamp {
    if grace_ms == 0 {
        // A key is still valid in the millisecond in which it expires.
        return now.plus_ms(-1);
    }
    let expires_at = now.plus_ms(grace_ms).0;
    Timestamp(expires_at.saturating_add((MINUTE_MS - expires_at.rem_euclid(MINUTE_MS)) % MINUTE_MS))
}

/// Returns the remaining credits, including those in leases, because another key cannot spend from them. `ends_now`: no
/// credits stay on the old key, which other replicas may consider valid for a moment, or for longer if a clock is
/// wrong.
async fn detach_remaining_credits(
    context: &Context,
    tx: &mut Tx,
    id: &KeyId,
    ends_now: bool,
) -> Result<Option<Credits>> {
    let mut account = tx.lock_account(id).await?;
    if !credits::close_for_change(context, tx, id, account.as_mut()).await? {
        // Credits that another replica may be spending now would be granted twice.
        return Err(Error::LeaseNotClosed);
    }
    let Some(account) = account else { return Ok(None) };
    if account.leases.iter().any(|lease| lease.unspent_units() > 0) {
        // Credits of a lost lease return to the key that leased them, after every replica has reported the lease.
        return Err(Error::LeaseNotClosed);
    }
    let remaining =
        refill::apply_refill(account.credits, credits::refill_time(context, account.database_time));
    let kept_on_old = match ends_now {
        true => {
            Credits { balance: 0, last_lease_number: remaining.last_lease_number + 1, ..remaining }
        }
        false => account.credits,
    };
    tx.update_balance(id, &kept_on_old).await?;
    Ok(Some(Credits { last_lease_number: 0, ..remaining }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_period_ends_at_a_full_minute_when_it_is_not_zero() {
        let now = Timestamp(10 * MINUTE_MS + 1);

        assert_eq!(grace_end(now, 0), Timestamp(10 * MINUTE_MS));
        assert_eq!(grace_end(now, 1), Timestamp(11 * MINUTE_MS));
        assert_eq!(grace_end(now, MINUTE_MS - 1), Timestamp(11 * MINUTE_MS));
        assert_eq!(grace_end(now, MINUTE_MS), Timestamp(12 * MINUTE_MS));
        assert_eq!(grace_end(Timestamp(i64::MAX), 1), Timestamp(i64::MAX));
    }
}
