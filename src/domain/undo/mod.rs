//! Undoing what the audit log tells of, by the same functions as everything else: with the same rights, and with an
//! entry of its own that says what it undid. What is undone once is not undone again; that can itself be undone.

mod way;

pub use way::{Way, WhyNot, way};

use std::str::FromStr;

use super::audit::{self, fields};
use super::caller::Caller;
use super::identities::{self, Called};
use super::keys::{self, CreditsUpdate, Deletion, Rights, Stamp};
use super::ratelimits::{OverrideState, namespaces, overrides};
use super::rbac::{self, Missing, Pick, PickBy, RoleChange};
use super::{apis, people, root_keys};
use crate::app::App;
use crate::error::{Error, Refusal, Result};
use crate::id::{AuditId, RoleId};
use crate::model::{MemberRole, OnOutage};

/// Undoes an entry. What was done, and to what.
pub async fn undo(app: &App, caller: &Caller, id: &AuditId) -> Result<Way> {
    let (entry, _) = audit::act(app, caller, id).await?;
    if entry.undone_by.is_some() {
        return Err(Error::Refused(Refusal::UndoneAlready));
    }
    let way = way(&entry).map_err(|why| Error::Refused(Refusal::NotUndone(why)))?;
    let caller = Caller { undoes: Some(id.clone()), once: None, ..caller.clone() };
    let before = entry.before.unwrap_or_default();
    // Boxed: every act is in it.
    Box::pin(go(app, &caller, &way, &before)).await?;
    Ok(way)
}

#[expect(clippy::too_many_lines, reason = "a few for each way")]
async fn go(app: &App, caller: &Caller, way: &Way, before: &str) -> Result<()> {
    match way {
        Way::SetKey(id) => keys::update(app, caller, id, keys::back(&fields(before)?)?).await,
        Way::AddCredits(id, credits) => {
            let update = match *credits {
                less if less < 0 => CreditsUpdate::Decrement(less.saturating_neg()),
                more => CreditsUpdate::Increment(more),
            };
            keys::update_credits(app, caller, id, update, Stamp::Set).await.map(drop)
        }
        Way::DeleteKey(id) => keys::delete(app, caller, id, Deletion::Soft).await,
        Way::RestoreKey(id) => keys::restore(app, caller, id).await,
        Way::GivePermission(key, permission) => {
            let picks = one(permission.as_str());
            keys::permissions::add(app, caller, key, picks, Rights::KeyToo).await.map(drop)
        }
        Way::TakePermission(key, permission) => {
            let picks = one(permission.as_str());
            keys::permissions::remove(app, caller, key, picks, Rights::KeyToo).await.map(drop)
        }
        Way::GiveRole(key, role) => {
            keys::roles::add(app, caller, key, one(role.as_str()), Rights::KeyToo).await.map(drop)
        }
        Way::TakeRole(key, role) => {
            let picks = one(role.as_str());
            keys::roles::remove(app, caller, key, picks, Rights::KeyToo).await.map(drop)
        }
        Way::DeletePermission(id) => rbac::delete_permission(app, caller, id.as_str()).await,
        Way::RestorePermission(id) => rbac::restore_permission(app, caller, id, before).await,
        Way::SetRole(id) => {
            let change = RoleChange::back(&fields(before)?)?;
            rbac::change_role(app, caller, id, change).await.map(drop)
        }
        Way::DeleteRole(id) => rbac::delete_role(app, caller, id.as_str()).await,
        Way::RestoreRole(id) => rbac::restore_role(app, caller, id, before).await,
        Way::GiveToRole(role, slug) => {
            let with = |mut slugs: Vec<String>| {
                slugs.push(slug.clone());
                slugs
            };
            set_role(app, caller, role, with).await
        }
        Way::TakeFromRole(role, slug) => {
            let without = |mut slugs: Vec<String>| {
                slugs.retain(|known| known != slug);
                slugs
            };
            set_role(app, caller, role, without).await
        }
        Way::SetIdentity(id) => {
            let change = identities::back(&fields(before)?)?;
            let called = Called::Id(id.to_string());
            identities::update(app, caller, &called, change).await.map(drop)
        }
        Way::DeleteIdentity(id) => {
            identities::delete(app, caller, &Called::Id(id.to_string())).await
        }
        Way::RestoreIdentity(id) => identities::restore(app, caller, id, before).await,
        Way::SetApi(id) => {
            apis::change(app, caller, id, apis::back(&fields(before)?)?).await.map(drop)
        }
        Way::DeleteApi(id) => apis::delete(app, caller, id).await,
        Way::RestoreApi(id) => apis::restore(app, caller, id).await.map(drop),
        Way::SetNamespace(id) => {
            let on_outage: OnOutage = word(before, "onOutage")?;
            namespaces::set_on_outage_by(app, caller, id, on_outage).await.map(drop)
        }
        Way::DeleteNamespace(id) => namespaces::delete_by(app, caller, id).await.map(drop),
        Way::RestoreNamespace(id) => namespaces::restore(app, caller, id).await.map(drop),
        Way::SetOverride(namespace) => {
            let state: OverrideState = audit::kept(before)?;
            overrides::set(app, caller, state.back(namespace.to_string())).await.map(drop)
        }
        Way::DeleteOverride(namespace, identifier) => {
            overrides::delete(app, caller, namespace.as_str(), identifier).await
        }
        Way::SetMemberRole(id) => {
            let role: MemberRole = word(before, "role")?;
            people::set_role(app, caller, id, role).await
        }
        Way::RemoveMember(id) => people::remove(app, caller, id).await,
        Way::WithdrawInvitation(id) => people::withdraw(app, caller, id).await,
        Way::RevokeRootKey(id) => root_keys::end(app, caller, id).await,
        Way::RestoreRootKey(id) => root_keys::restore(app, caller, id).await,
    }
}

/// A field of what an entry keeps that is one of some words.
fn word<T: FromStr>(kept: &str, field: &str) -> Result<T> {
    let value = fields(kept)?.swap_remove(field);
    let word: Option<String> = value.map(|value| audit::read(&value)).transpose()?;
    let word = word.and_then(|word| word.parse().ok());
    word.ok_or_else(|| Error::Internal(format!("an entry keeps no {field}")))
}

/// One that is there, by its id.
fn one(id: &str) -> Vec<Pick> {
    vec![Pick { by: PickBy::Id(id.to_owned()), missing: Missing::Refused }]
}

async fn set_role(
    app: &App,
    caller: &Caller,
    id: &RoleId,
    change: impl FnOnce(Vec<String>) -> Vec<String>,
) -> Result<()> {
    let role = rbac::get_role(app, caller, id.as_str()).await?;
    let slugs = role.permissions.into_iter().map(|permission| permission.slug).collect();
    rbac::set_role_permissions(app, caller, id, change(slugs)).await.map(drop)
}
