//! Checks of the database content: replicas, withheld credits, master key, root keys and owners.

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::RootKey;
use foundation::vault::MasterKeys;
use store::Store;

use super::{Finding, format_age, format_count};
use crate::context::REPLICA_TTL_MS;
use crate::permission::Grants;
use crate::root_keys::all_permissions;
use crate::{permission, vault};

/// The maximum numbers of replicas and root keys that are read.
const REPLICAS_MAX: i64 = 1_000;
const ROOT_KEYS_MAX: i64 = 10_000;

/// Returns the number of replicas that have registered within [`REPLICA_TTL_MS`].
pub async fn count_live_replicas(store: &Store) -> Result<usize> {
    let replicas = store.read().await?.list_replicas(REPLICAS_MAX).await?;
    Ok(replicas.iter().filter(|(_, ms)| *ms <= REPLICA_TTL_MS).count())
}

/// Lists the registered replicas with the age of their last registration.
pub async fn check_replicas(store: &Store) -> Result<Finding> {
    let all = store.read().await?.list_replicas(REPLICAS_MAX).await?;
    let (present, silent): (Vec<_>, Vec<_>) = all.iter().partition(|(_, ms)| *ms <= REPLICA_TTL_MS);
    let line = |(id, ms): &&(String, i64)| format!("{id} {} ago", format_age(*ms));
    let list = |replicas: &[&(String, i64)]| list_first(10, replicas.iter().map(line));
    let found = match present.as_slice() {
        [] if silent.is_empty() => "no replica is registered".to_owned(),
        [] => "none is running".to_owned(),
        _ => format!("{} running: {}", format_count(present.len(), "is", "are"), list(&present)),
    };
    if silent.is_empty() {
        return Ok(Finding::ok("replicas", found));
    }
    let silent_count = format_count(silent.len(), "is", "are");
    let found = format!("{found}; {silent_count} silent: {}", list(&silent));
    let todo = "a replica deregisters when it stops: check whether these were killed, hang, or cannot reach Postgres; \
        a killed replica is removed after one day";
    Ok(Finding::warning("replicas", found, todo))
}

/// Returns the first entries of a list, with an ellipsis if there are more.
fn list_first(max: usize, entries: impl ExactSizeIterator<Item = String>) -> String {
    let has_more = entries.len() > max;
    let mut shown: Vec<_> = entries.take(max).collect();
    if has_more {
        shown.push("…".to_owned());
    }
    shown.join(", ")
}

/// Reports the credits that are withheld after Redis data loss.
pub async fn check_withheld_credits(store: &Store, now: Timestamp) -> Result<Finding> {
    let withheld = store.read().await?.list_withheld(None).await?;
    let Some(oldest) = withheld.first() else {
        return Ok(Finding::ok("credits", "none are withheld"));
    };
    let units: i64 = withheld.iter().map(|entry| entry.units).fold(0, i64::saturating_add);
    let age = format_age(now.0 - oldest.since.0);
    let leases = format_count(withheld.len(), "lease", "leases");
    Ok(Finding::warning(
        "credits",
        format!("{units} are withheld, in {leases}, the oldest for {age}"),
        "wait some seconds: they return once every replica has reported what it spent; if a replica was killed, \
        see keyward credits list and release",
    ))
}

/// Checks that the configured master keys decrypt every data key and signing key.
pub async fn check_master_key(store: &Store, masters: Option<&MasterKeys>) -> Result<Finding> {
    let undecryptable = vault::list_undecryptable(store, masters).await?;
    let current = match masters {
        None => "no master key is configured".to_owned(),
        Some(found) => format!("the master key is {}", found.current_key.id),
    };
    let workspaces = format_count(undecryptable.data_keys.len(), "workspace", "workspaces");
    let sealed = match undecryptable.data_keys.is_empty() {
        true => "the signing keys".to_owned(),
        false => format!("the recoverable keys of {workspaces}"),
    };
    Ok(match undecryptable.missing_master_id() {
        None => Finding::ok("master-key", format!("{current}; nothing is sealed with another")),
        Some(missing) => Finding::problem(
            "master-key",
            format!("{current}; {sealed} are sealed with {missing}"),
            "restore that master key (KEYWARD_MASTER_KEY, or master.key in the data directory): no server starts \
            without it",
        ),
    })
}

/// Reports the non-expiring root keys that have all permissions.
pub async fn check_root_keys(store: &Store) -> Result<Finding> {
    let non_expiring = store.read().await?.list_non_expiring_root_keys(ROOT_KEYS_MAX).await?;
    let unrestricted: Vec<_> = non_expiring.iter().filter(|key| has_all_permissions(key)).collect();
    if unrestricted.is_empty() {
        return Ok(Finding::ok("root-keys", "no non-expiring root key has all permissions"));
    }
    let ids = list_first(5, unrestricted.iter().map(|key| key.id.to_string()));
    let subject = format_count(
        unrestricted.len(),
        "non-expiring root key has",
        "non-expiring root keys have",
    );
    Ok(Finding::warning(
        "root-keys",
        format!("{subject} all permissions: {ids}"),
        "give each program a root key with only the permissions that it needs (keyward root-key create), then run \
        keyward root-key revoke ID",
    ))
}

fn has_all_permissions(key: &RootKey) -> bool {
    let grants: Grants = key.permissions.iter().map(String::as_str).collect();
    all_permissions()
        .iter()
        .filter_map(|tuple| permission::parse_tuple(tuple).ok())
        .all(|(action, _)| grants.is_allowed(action))
}

/// Checks that a workspace has an owner, who can use the dashboard.
pub async fn check_owners(store: &Store) -> Result<Finding> {
    let owners = store.read().await?.count_owners().await?;
    Ok(match owners {
        0 => Finding::warning(
            "people",
            "no workspace has an owner, so no user can sign in to the dashboard",
            "open the link that keyward dashboard setup-link prints",
        ),
        owners => {
            let owners = usize::try_from(owners).unwrap_or(usize::MAX);
            Finding::ok("people", format_count(owners, "owner", "owners"))
        }
    })
}
