//! Checks of the database content: replicas, withheld credits, master key, root keys and owners.

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::RootKey;
use foundation::vault::MasterKeys;
use store::Store;

use super::super::permission::Grants;
use super::super::root_keys::every_permission;
use super::super::{permission, vault};
use super::{Finding, ago, count};
use crate::app::REPLICA_TTL_MS;

/// The maximum numbers of replicas and root keys that are read.
const REPLICAS_MAX: i64 = 1_000;
const ROOT_KEYS_MAX: i64 = 10_000;

/// Returns the number of replicas that have registered within [`REPLICA_TTL_MS`].
pub async fn present(store: &Store) -> Result<usize> {
    let replicas = store.read().await?.replicas(REPLICAS_MAX).await?;
    Ok(replicas.iter().filter(|(_, ms)| *ms <= REPLICA_TTL_MS).count())
}

/// Lists the registered replicas with the age of their last registration.
pub async fn replicas(store: &Store) -> Result<Finding> {
    let all = store.read().await?.replicas(REPLICAS_MAX).await?;
    let (present, silent): (Vec<_>, Vec<_>) = all.iter().partition(|(_, ms)| *ms <= REPLICA_TTL_MS);
    let line = |(id, ms): &&(String, i64)| format!("{id} {} ago", ago(*ms));
    let lines: Vec<_> = present.iter().chain(&silent).take(10).map(line).collect();
    let found = format!("{} running: {}", count(present.len(), "is", "are"), lines.join(", "));
    if silent.is_empty() {
        let found = if all.is_empty() { "no replica is registered".into() } else { found };
        return Ok(Finding::ok("replicas", found));
    }
    let found = format!("{found}; {} silent", count(silent.len(), "is", "are"));
    let todo = "a replica deregisters when it stops: check whether these were killed, hang, or cannot reach Postgres; \
        a killed replica is removed after one day";
    Ok(Finding::warning("replicas", found, todo))
}

/// Reports the credits that are withheld after Redis data loss.
pub async fn credits(store: &Store, now: Timestamp) -> Result<Finding> {
    let withheld = store.read().await?.withheld(None).await?;
    let Some(oldest) = withheld.first() else {
        return Ok(Finding::ok("credits", "none are withheld"));
    };
    let units: i64 = withheld.iter().map(|entry| entry.units).fold(0, i64::saturating_add);
    let age = ago(now.0 - oldest.since.0);
    let leases = count(withheld.len(), "lease", "leases");
    Ok(Finding::warning(
        "credits",
        format!("{units} are withheld, in {leases}, the oldest for {age}"),
        "wait some seconds: they return once every replica has reported what it spent; if a replica was killed, \
        see keyward credits list and release",
    ))
}

/// Checks that the configured master keys decrypt every data key.
pub async fn master_key(store: &Store, masters: Option<&MasterKeys>) -> Result<Finding> {
    let undecryptable = vault::list_undecryptable_data_keys(store, masters).await?;
    let current = match masters {
        None => "no master key is configured".to_owned(),
        Some(found) => format!("the master key is {}", found.current.id),
    };
    Ok(match undecryptable.first() {
        None => Finding::ok("master-key", format!("{current}; nothing is sealed with another")),
        Some(first) => Finding::problem(
            "master-key",
            format!(
                "{current}; the recoverable keys of {} are sealed with {}",
                count(undecryptable.len(), "workspace", "workspaces"),
                first.master_id
            ),
            "restore that master key (KEYWARD_MASTER_KEY, or master.key in the data directory): no server starts \
            without it",
        ),
    })
}

/// Reports the non-expiring root keys that have all permissions.
pub async fn root_keys(store: &Store) -> Result<Finding> {
    let non_expiring = store.read().await?.list_non_expiring_root_keys(ROOT_KEYS_MAX).await?;
    let unrestricted: Vec<_> = non_expiring.iter().filter(|key| may_all(key)).collect();
    if unrestricted.is_empty() {
        return Ok(Finding::ok("root-keys", "no non-expiring root key has all permissions"));
    }
    let ids: Vec<_> = unrestricted.iter().take(5).map(|key| key.id.as_str()).collect();
    let subject =
        count(unrestricted.len(), "non-expiring root key has", "non-expiring root keys have");
    Ok(Finding::warning(
        "root-keys",
        format!("{subject} all permissions: {}", ids.join(", ")),
        "give each program a root key with only the permissions that it needs (keyward root-key create), then run \
        keyward root-key revoke ID",
    ))
}

fn may_all(key: &RootKey) -> bool {
    let grants: Grants = key.permissions.iter().map(String::as_str).collect();
    every_permission()
        .iter()
        .filter_map(|tuple| permission::parse(tuple).ok())
        .all(|(action, _)| grants.allow(action))
}

/// Checks that a workspace has an owner, who can use the dashboard.
pub async fn people(store: &Store) -> Result<Finding> {
    let owners = store.read().await?.count_owners().await?;
    Ok(match owners {
        0 => Finding::warning(
            "people",
            "no workspace has an owner, so no user can sign in to the dashboard",
            "open the link that keyward dashboard setup-link prints",
        ),
        owners => {
            let owners = usize::try_from(owners).unwrap_or(usize::MAX);
            Finding::ok("people", count(owners, "owner", "owners"))
        }
    })
}
