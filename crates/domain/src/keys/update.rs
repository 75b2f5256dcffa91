//! Updating a key.

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, Result};
use foundation::id::KeyId;
use foundation::model::{Credits, Meta, Permission, Ratelimit, Refill, Role};
use store::{LimitOwner, StoredKey, Tx, freshness};

use super::assignments::{Assignment, require_changes, set_assigned};
use super::metering::{IdleRefill, Metering};
use super::references::ensure_identity;
use super::snapshot::KeySnapshot;
use super::{
    NewCredits, NewRatelimit, Patch, audit_meta, audit_target, lock_existing, to_ratelimits,
};
use crate::audit::{AuditBatch, AuditEvent, FieldChanges};
use crate::bounds::RATELIMITS_MAX;
use crate::caller::Caller;
use crate::context::Context;
use crate::credits;
use crate::keys::Keys;
use crate::permission::Action;
use crate::rbac::Selector;

/// The changes to a key. Absent fields keep their values.
#[derive(Debug, Clone, Default)]
pub struct KeyChange {
    pub name: Patch<String>,
    pub external_id: Patch<String>,
    pub meta: Patch<Meta>,
    pub expires_at: Patch<Timestamp>,
    pub credits: Patch<CreditsChange>,
    pub ratelimits: RatelimitsChange,
    pub enabled: Option<bool>,
    pub roles: Option<Vec<Selector>>,
    pub permissions: Option<Vec<Selector>>,
    /// The permissions required to change `roles` and `permissions`, besides the one to update the key.
    pub assignment_policy: AssignmentPolicy,
}

impl KeyChange {
    /// Returns whether every field keeps its value.
    pub fn is_empty(&self) -> bool {
        let is_kept = [
            self.name == Patch::Keep,
            self.external_id == Patch::Keep,
            matches!(self.meta, Patch::Keep),
            self.expires_at == Patch::Keep,
            self.credits == Patch::Keep,
            matches!(self.ratelimits, RatelimitsChange::Keep),
            self.enabled.is_none(),
            self.roles.is_none(),
            self.permissions.is_none(),
        ];
        is_kept.into_iter().all(|is_kept| is_kept)
    }
}

/// The change of the limits of a key.
#[derive(Debug, Clone, Default)]
pub enum RatelimitsChange {
    #[default]
    Keep,
    /// Replaces all limits.
    All(Vec<NewRatelimit>),
    /// Sets or removes the limit of this name; the others stay.
    One { name: String, limit: Option<NewRatelimit> },
}

/// The permissions required to change permissions and roles.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum AssignmentPolicy {
    /// None: a caller that may update the key may change them.
    #[default]
    KeyUpdate,
    /// Those to add and to remove, as far as something is added or removed.
    AssignmentActions,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreditsChange {
    pub remaining: Patch<i64>,
    pub refill: Patch<Refill>,
    /// What happens to the refill if the key becomes unlimited. A refill that is dropped cannot be set.
    pub idle_refill: IdleRefill,
}

/// Updates a key, completely or not at all.
pub async fn update(keys: &Keys, caller: &Caller, id: &KeyId, change: KeyChange) -> Result<()> {
    credits::run_with_closed_leases(&keys.ledger, id, || {
        update_once(&keys.context, caller, id, change.clone())
    })
    .await
}

async fn update_once(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    change: KeyChange,
) -> Result<()> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let mut stored = lock_existing(&mut tx, caller, id).await?;
    let snapshot_before = KeySnapshot::from_key(&stored.key, &stored.ratelimits);
    let key = &mut stored.key;
    let policy = match context.settings.security.strict_grants {
        true => AssignmentPolicy::AssignmentActions,
        false => change.assignment_policy,
    };
    caller.require_on(Action::UpdateKey, &key.api_id)?;
    change.name.apply(&mut key.name);
    change.meta.apply(&mut key.meta);
    change.expires_at.apply(&mut key.expires_at);
    key.is_enabled = change.enabled.unwrap_or(key.is_enabled);
    key.updated_at = Some(now);
    match change.external_id {
        Patch::Keep => {}
        Patch::Clear => (key.identity_id, key.owner_id) = (None, None),
        Patch::Set(external_id) => {
            let id = ensure_identity(context, &mut tx, caller, &external_id, now).await?;
            (key.identity_id, key.owner_id) = (Some(id), Some(external_id));
        }
    }
    tx.update_key(key).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let targets = [audit_target(key).with_meta(audit_meta::for_key_update(&change.credits))];
    let entry = entries.add_change(AuditEvent::KeyUpdated, &targets, FieldChanges::default());
    let limits = limits_after(change.ratelimits, &stored.ratelimits)?;
    if let Some(limits) = &limits {
        tx.replace_ratelimits(caller.workspace_id(), LimitOwner::Key(id), limits).await?;
    }
    let snapshot = KeySnapshot::from_key(key, limits.as_deref().unwrap_or(&stored.ratelimits));
    if let Some(selectors) = change.permissions {
        replace_assignments::<Permission>(
            &mut tx,
            caller,
            &stored,
            selectors,
            policy,
            &mut entries,
            now,
        )
        .await?;
    }
    if let Some(selectors) = change.roles {
        replace_assignments::<Role>(&mut tx, caller, &stored, selectors, policy, &mut entries, now)
            .await?;
    }
    // Last of all steps that may fail, because closing a lease cannot be undone.
    let credits = change_credits(context, &mut tx, id, stored.refill, change.credits).await?;
    let change = match credits {
        None => FieldChanges::updated(&snapshot_before, &snapshot),
        Some((before, after)) => FieldChanges::updated(
            &snapshot_before.with_credits(before),
            &snapshot.with_credits(after),
        ),
    };
    entries.set_change(entry, change?);
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Key(id.clone()));
    context.commit(tx).await
}

/// Replaces the direct permissions or the roles of a key.
async fn replace_assignments<T: Assignment>(
    tx: &mut Tx,
    caller: &Caller,
    stored: &StoredKey,
    selectors: Vec<Selector>,
    policy: AssignmentPolicy,
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<()> {
    let after = T::resolve(tx, caller, selectors, entries, now).await?;
    let before = T::list_assigned(tx, caller, stored).await?;
    if policy == AssignmentPolicy::AssignmentActions {
        require_changes(caller, &before, &after)?;
    }
    set_assigned(tx, entries, &stored.key, &before, &after).await
}

/// Returns the limits after the change; `None` if they stay the same. Fails if the change adds a limit to a key that has the
/// maximum. The interfaces bound a change of all limits.
fn limits_after(change: RatelimitsChange, before: &[Ratelimit]) -> Result<Option<Vec<Ratelimit>>> {
    match change {
        RatelimitsChange::Keep => Ok(None),
        RatelimitsChange::All(limits) => Ok(Some(to_ratelimits(limits))),
        RatelimitsChange::One { name, limit } => {
            let known = before.iter().find(|known| known.name == name);
            // An existing limit keeps its `auto_apply`.
            let auto_apply = known.map(|known| known.auto_apply);
            let updated = limit.map(|limit| NewRatelimit {
                auto_apply: auto_apply.unwrap_or(limit.auto_apply),
                ..limit
            });
            let mut limits = before.to_vec();
            limits.retain(|known| known.name != name);
            limits.extend(to_ratelimits(updated.into_iter().collect()));
            if limits.len() > RATELIMITS_MAX && limits.len() > before.len() {
                return Err(Error::PreconditionFailed(Refusal::TooManyRatelimits(RATELIMITS_MAX)));
            }
            Ok(Some(limits))
        }
    }
}

/// Changes the credits and returns the states before and after; `None` if they stay the same.
async fn change_credits(
    context: &Context,
    tx: &mut Tx,
    key: &KeyId,
    idle_refill: Option<Refill>,
    change: Patch<CreditsChange>,
) -> Result<Option<(Metering, Metering)>> {
    let (change, sets) = match change {
        Patch::Keep => return Ok(None),
        Patch::Clear => (CreditsChange { remaining: Patch::Clear, ..Default::default() }, true),
        Patch::Set(change) => {
            let sets = change.remaining != Patch::Keep;
            (change, sets)
        }
    };
    let mut account = tx.lock_account(key).await?;
    let is_closed = credits::close_for_change(context, tx, key, account.as_mut()).await?;
    let now = match &account {
        Some(account) => account.database_time,
        None => tx.load_database_time().await?,
    };
    let now = credits::refill_time(context, now);
    let before = Metering::from_account(account.map(|account| account.credits), idle_refill, now);
    let after = apply_credits_change(before, change, now)?;
    if sets {
        if !is_closed && after.credits().is_some() {
            // A replica may be spending from a lease whose close is unconfirmed, and that spend cannot be undone.
            return Err(Error::LeaseNotClosed);
        }
        tx.forfeit_leases(key).await?;
    }
    after.write(tx, key).await?;
    Ok(Some((before, after)))
}

fn apply_credits_change(
    before: Metering,
    change: CreditsChange,
    now: Timestamp,
) -> Result<Metering> {
    let mut refill = before.refill();
    let sets_refill = matches!(change.refill, Patch::Set(_));
    change.refill.apply(&mut refill);
    let balance = match (change.remaining, before, change.idle_refill) {
        (Patch::Set(remaining), _, _) => remaining,
        (Patch::Keep, Metering::Metered(credits), _) => credits.balance,
        (Patch::Keep, Metering::Unlimited(_), IdleRefill::Drop) if sets_refill => {
            return Err(Error::invalid(
                "/properties/credits/properties/refill",
                "credits.refill requires credits.remaining: the key is unlimited",
            ));
        }
        (Patch::Keep, Metering::Unlimited(_), _) | (Patch::Clear, _, IdleRefill::Keep) => {
            return Ok(Metering::Unlimited(refill));
        }
        (Patch::Clear, _, IdleRefill::Drop) => return Ok(Metering::Unlimited(None)),
    };
    let opened = NewCredits { balance, refill }.to_credits(now);
    // An unchanged refill keeps its period, whether it has been applied or is due.
    let unchanged = before.credits().filter(|credits| credits.refill == refill);
    let refilled = unchanged.map_or(opened.refilled_period, |unchanged| unchanged.refilled_period);
    Ok(Metering::Metered(Credits { refilled_period: refilled, ..opened }))
}
