//! What stands in the database and waits for somebody.

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

/// How many replicas and root keys are looked at.
const REPLICAS_MAX: i64 = 1_000;
const ROOT_KEYS_MAX: i64 = 10_000;

/// How many replicas have said within the last seconds that they are there.
pub async fn present(store: &Store) -> Result<usize> {
    let replicas = store.read().await?.replicas(REPLICAS_MAX).await?;
    Ok(replicas.iter().filter(|(_, ms)| *ms <= REPLICA_TTL_MS).count())
}

/// Who has said that it is there, and when last.
pub async fn replicas(store: &Store) -> Result<Finding> {
    let all = store.read().await?.replicas(REPLICAS_MAX).await?;
    let (present, silent): (Vec<_>, Vec<_>) = all.iter().partition(|(_, ms)| *ms <= REPLICA_TTL_MS);
    let line = |(id, ms): &&(String, i64)| format!("{id} {} ago", ago(*ms));
    let heard: Vec<_> = present.iter().chain(&silent).take(10).map(line).collect();
    let found = format!("{} there: {}", count(present.len(), "is", "are"), heard.join(", "));
    if silent.is_empty() {
        let found = if all.is_empty() { "none has said that it is there".into() } else { found };
        return Ok(Finding::ok("replicas", found));
    }
    let found = format!("{found}; {} silent", count(silent.len(), "is", "are"));
    let todo = "a replica that was stopped signs off: look whether these were killed, hang, or cannot reach Postgres; \
        what was killed is forgotten after a day";
    Ok(Finding::warning("replicas", found, todo))
}

/// What keys cannot spend, because a Redis that held it is gone.
pub async fn credits(store: &Store, now: Timestamp) -> Result<Finding> {
    let ledger = store.read().await?.withheld(None).await?;
    let Some(oldest) = ledger.first() else {
        return Ok(Finding::ok("credits", "none are withheld"));
    };
    let units: i64 = ledger.iter().map(|entry| entry.units).fold(0, i64::saturating_add);
    let since = ago(now.0 - oldest.since.0);
    let purses = count(ledger.len(), "purse", "purses");
    Ok(Finding::warning(
        "credits",
        format!("{units} are withheld, in {purses}, the first for {since}"),
        "wait some seconds: they come back once every replica has told what it spent; where one was killed, \
        see keyward credits list and release",
    ))
}

/// Whether what is sealed can be opened.
pub async fn master_key(store: &Store, masters: Option<&MasterKeys>) -> Result<Finding> {
    let unopened = vault::list_undecryptable_data_keys(store, masters).await?;
    let here = match masters {
        None => "there is none".to_owned(),
        Some(found) => format!("it is {}", found.current.id),
    };
    Ok(match unopened.first() {
        None => Finding::ok("master-key", format!("{here}, and nothing is sealed with another")),
        Some(first) => Finding::problem(
            "master-key",
            format!(
                "{here}, and the recoverable keys of {} are sealed with {}",
                count(unopened.len(), "workspace", "workspaces"),
                first.master_id
            ),
            "give back that master key (KEYWARD_MASTER_KEY, or master.key in the data directory): no server starts \
            without it",
        ),
    })
}

/// Root keys that may do everything for ever.
pub async fn root_keys(store: &Store) -> Result<Finding> {
    let lasting = store.read().await?.list_non_expiring_root_keys(ROOT_KEYS_MAX).await?;
    let mighty: Vec<_> = lasting.iter().filter(|key| may_all(key)).collect();
    if mighty.is_empty() {
        return Ok(Finding::ok("root-keys", "none has every permission for ever"));
    }
    let ids: Vec<_> = mighty.iter().take(5).map(|key| key.id.as_str()).collect();
    let verb = count(mighty.len(), "root key has", "root keys have");
    Ok(Finding::warning(
        "root-keys",
        format!("{verb} every permission and never expire: {}", ids.join(", ")),
        "give each program a root key with what it needs (keyward root-key create), then keyward root-key revoke ID",
    ))
}

fn may_all(key: &RootKey) -> bool {
    let grants: Grants = key.permissions.iter().map(String::as_str).collect();
    every_permission()
        .iter()
        .filter_map(|tuple| permission::parse(tuple).ok())
        .all(|(action, _)| grants.allow(action))
}

/// Whether somebody can use the dashboard.
pub async fn people(store: &Store) -> Result<Finding> {
    let owners = store.read().await?.count_owners().await?;
    Ok(match owners {
        0 => Finding::warning(
            "people",
            "nobody owns a workspace, so nobody can use the dashboard",
            "open the link that keyward dashboard setup-link prints",
        ),
        owners => {
            let owners = usize::try_from(owners).unwrap_or(usize::MAX);
            Finding::ok("people", count(owners, "owner", "owners"))
        }
    })
}
