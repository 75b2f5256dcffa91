//! Changing a key.

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::KeyId;
use foundation::model::{Credits, Meta, Ratelimit, Refill};
use store::{LimitOwner, Tx, freshness};

use super::super::audit::{AuditBatch, FieldChanges};
use super::super::caller::Caller;
use super::super::credits;
use super::super::permission::Action;
use super::super::rbac::{self, Selector};
use super::assignment_access::{AssignmentAccess, RequiredActions};
use super::metering::{IdleRefill, Metering};
use super::snapshot::KeySnapshot;
use super::{
    NewCredits, NewRatelimit, Patch, audit_meta, ratelimits, require_existing, set_permissions,
    set_roles, target,
};
use crate::app::App;

/// What is to change; what is absent stays.
#[derive(Debug, Default)]
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
    /// What the root key must hold to change the last two, besides the right to change the key.
    pub links: AssignmentPolicy,
}

/// What becomes of the limits of a key.
#[derive(Debug, Default)]
pub enum RatelimitsChange {
    #[default]
    Keep,
    /// These replace all.
    All(Vec<NewRatelimit>),
    /// The one of this name is put or taken; the others stay.
    One { name: String, limit: Option<NewRatelimit> },
}

/// Which rights over permissions and roles are asked for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum AssignmentPolicy {
    /// None: who may change the key may change them.
    #[default]
    OfKey,
    /// Those to give and to take, as far as something is given or taken.
    Own,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct CreditsChange {
    pub remaining: Patch<i64>,
    pub refill: Patch<Refill>,
    /// What becomes of the refill where the key is unlimited then; one that is dropped cannot be set.
    pub idle: IdleRefill,
}

impl AssignmentPolicy {
    fn needed(self, give: Action, take: Action) -> RequiredActions<'static> {
        match self {
            Self::OfKey => RequiredActions::new(AssignmentAccess::KeyToo, &[]),
            Self::Own => RequiredActions::to_set(AssignmentAccess::LinksOnly, &[], give, take),
        }
    }
}

/// Changes a key, all of it or nothing.
pub async fn update(app: &App, caller: &Caller, id: &KeyId, change: KeyChange) -> Result<()> {
    let applied = apply(app, caller, id, change).await;
    credits::withhold_unclosed(app, id, applied).await
}

async fn apply(app: &App, caller: &Caller, id: &KeyId, change: KeyChange) -> Result<()> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let before = require_existing(&mut tx, caller, id).await?;
    let state_before = KeySnapshot::of(&before.key, &before.ratelimits);
    let mut key = before.key;
    let links = match app.settings.security.strict_grants {
        true => AssignmentPolicy::Own,
        false => change.links,
    };
    caller.require_on(Action::UpdateKey, &key.api_id)?;
    change.name.apply(&mut key.name);
    change.meta.apply(&mut key.meta);
    change.expires_at.apply(&mut key.expires_at);
    key.enabled = change.enabled.unwrap_or(key.enabled);
    key.updated_at = Some(now);
    match change.external_id {
        Patch::Keep => {}
        Patch::Clear => (key.identity_id, key.owner_id) = (None, None),
        Patch::Set(external_id) => {
            let id = tx.ensure_identity(caller.workspace(), &external_id, now).await?;
            (key.identity_id, key.owner_id) = (Some(id), Some(external_id));
        }
    }
    tx.update_key(&key).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let targets = [target(&key).with_meta(audit_meta::of_change(&change.credits))];
    let entry = entries.add_change("key.update", &targets, FieldChanges::default());
    let limits = limits_after(change.ratelimits, &before.ratelimits);
    if let Some(limits) = &limits {
        tx.set_ratelimits(caller.workspace(), LimitOwner::Key(id), limits).await?;
    }
    let state = KeySnapshot::of(&key, limits.as_deref().unwrap_or(&before.ratelimits));
    if let Some(picks) = change.permissions {
        let after = rbac::picked_permissions(&mut tx, caller, picks, &mut entries, now).await?;
        let (give, take) = (Action::AddPermissionToKey, Action::RemovePermissionFromKey);
        let needed = links.needed(give, take);
        needed.check_links(caller, &before.permissions, &after, |permission| &permission.id)?;
        set_permissions(&mut tx, &mut entries, &key, &before.permissions, &after).await?;
    }
    if let Some(picks) = change.roles {
        let known = tx.roles(caller.workspace(), &before.role_ids).await?;
        let after = rbac::resolve_roles(&mut tx, caller, picks, &mut entries, now).await?;
        let needed = links.needed(Action::AddRoleToKey, Action::RemoveRoleFromKey);
        needed.check_links(caller, &known, &after, |role| &role.id)?;
        set_roles(&mut tx, &mut entries, &key, &known, &after).await?;
    }
    // Last of all that may be refused, for it may close a purse, which cannot be undone.
    let credits = change_credits(app, &mut tx, id, before.refill, change.credits).await?;
    let change = match credits {
        None => FieldChanges::updated(&state_before, &state),
        Some((before, after)) => {
            FieldChanges::updated(&state_before.with_credits(before), &state.with_credits(after))
        }
    };
    entries.set_change(entry, change?);
    entries.write(&mut tx).await?;
    tx.changed(freshness::CacheTag::Key(id.clone()));
    app.commit(tx).await
}

/// The limits that the key has then; `None`: they stay.
fn limits_after(change: RatelimitsChange, before: &[Ratelimit]) -> Option<Vec<Ratelimit>> {
    match change {
        RatelimitsChange::Keep => None,
        RatelimitsChange::All(limits) => Some(ratelimits(limits)),
        RatelimitsChange::One { name, limit } => {
            let known = before.iter().find(|known| known.name == name);
            // One that is there goes on applying by itself, or not.
            let auto_apply = known.map(|known| known.auto_apply);
            let put = limit.map(|limit| NewRatelimit {
                auto_apply: auto_apply.unwrap_or(limit.auto_apply),
                ..limit
            });
            let mut limits = before.to_vec();
            limits.retain(|known| known.name != name);
            limits.extend(ratelimits(put.into_iter().collect()));
            Some(limits)
        }
    }
}

/// What the credits were, and what they are; `None`: they are left alone.
async fn change_credits(
    app: &App,
    tx: &mut Tx,
    key: &KeyId,
    idle: Option<Refill>,
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
    let is_settled = credits::settle_for_change(app, tx, key, account.as_mut()).await?;
    let now = match &account {
        Some(account) => account.database_time,
        None => tx.now().await?,
    };
    let now = credits::refill_time(app, now);
    let before = Metering::at(account.map(|account| account.credits), idle, now);
    let after = changed(before, change, now)?;
    if sets {
        if !is_settled && after.credits().is_some() {
            // Others may be spending from a purse that could not be closed: that cannot be undone.
            return Err(Error::LeaseNotClosed);
        }
        tx.forfeit_leases(key).await?;
    }
    after.write(tx, key).await?;
    Ok(Some((before, after)))
}

fn changed(before: Metering, change: CreditsChange, now: Timestamp) -> Result<Metering> {
    let mut refill = before.refill();
    change.refill.apply(&mut refill);
    let balance = match (change.remaining, before, change.idle) {
        (Patch::Set(remaining), _, _) => remaining,
        (Patch::Keep, Metering::Metered(credits), _) => credits.balance,
        (Patch::Keep | Patch::Clear, _, IdleRefill::Kept) => {
            return Ok(Metering::Unlimited(refill));
        }
        (Patch::Clear, _, IdleRefill::Dropped) => return Ok(Metering::Unlimited(None)),
        (Patch::Keep, Metering::Unlimited(_), IdleRefill::Dropped) => {
            return match refill {
                None => Ok(Metering::Unlimited(None)),
                Some(_) => Err(Error::invalid(
                    "/properties/credits/properties/refill",
                    "credits.refill needs credits.remaining: the key is unlimited",
                )),
            };
        }
    };
    let opened = NewCredits { balance, refill }.open(now);
    // A refill that stays keeps its period: it has happened, or is due, as before.
    let kept = before.credits().filter(|credits| credits.refill == refill);
    let refilled = kept.map_or(opened.refilled_period, |kept| kept.refilled_period);
    Ok(Metering::Metered(Credits { refilled_period: refilled, ..opened }))
}
