//! Keys as people look at them: lists of what they search for, and all there is to know of one.

use std::sync::Arc;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId};
use foundation::model::{Api, CreditAccount, Key, Role};
use limiter::Window;
use serde_json::Value;
use store::{KeyCursor, KeyListFilter, StoredEntry, StoredKey};

use super::super::admission::{self, WindowUsage};
use super::super::caller::Caller;
use super::super::page::{Page, Paging};
use super::super::permission::Action;
use super::super::{apis, credits, refill};
use super::get::{self, DecryptMode, FoundKey};
use super::resolved::ResolvedLimit;
use crate::app::App;

/// How many keys a search looks through for one page; the next one goes on behind them.
pub const LOOKED_THROUGH: i64 = 20_000;
/// How many entries of the audit log are told of a key, and how many are looked through for them.
const ENTRIES_MAX: i64 = 25;
const ENTRIES_LOOKED_THROUGH: i64 = 100_000;
/// How the ids of keys begin.
const ID: &str = "key_";

/// Whether a key is good by itself, in the order in which a verification looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStatus {
    Active,
    Disabled,
    Expired,
    /// No credits are left.
    Exhausted,
}

impl KeyStatus {
    pub const ALL: [Self; 4] = [Self::Active, Self::Disabled, Self::Expired, Self::Exhausted];

    /// Of a key that has so many credits left; without a number: that may be used without end.
    pub fn of(key: &Key, left: Option<i64>, now: Timestamp) -> Self {
        if !key.enabled {
            return Self::Disabled;
        }
        if key.expires_at.is_some_and(|expires| now > expires) {
            return Self::Expired;
        }
        if left == Some(0) { Self::Exhausted } else { Self::Active }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::Expired => "expired",
            Self::Exhausted => "exhausted",
        }
    }

    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// A key of a list.
#[derive(Debug)]
pub struct KeyListItem {
    pub stored: StoredKey,
    pub api_name: String,
    pub state: KeyStatus,
}

/// A page of the keys of a workspace, or of one of its APIs, the latest first. It may have fewer than it could and yet
/// another page behind it: where many were looked through, and where keys turn out to be in another state than the
/// database thinks.
pub async fn page(
    app: &App,
    caller: &Caller,
    api: Option<&ApiId>,
    state: Option<KeyStatus>,
    paging: &Paging,
) -> Result<Page<KeyListItem>> {
    match api {
        Some(api) => {
            caller.require_on(Action::ReadKey, api)?;
            apis::get(app, caller, api).await?;
        }
        None => caller.require(Action::ReadKey)?,
    }
    let now = app.clock.now();
    let search = paging.search.trim();
    let wanted = KeyListFilter {
        api: api.cloned(),
        search: search.to_owned(),
        id_prefix: search.starts_with(ID).then(|| search.to_owned()),
        state: state.map_or("", KeyStatus::as_str),
        from: beginning(&paging.from),
        until: None,
        limit: paging.look_ahead(),
        now,
        periods: refill::periods(now),
    };
    let mut reader = app.store.read_balances().await?;
    let mut stored = Vec::new();
    if wanted.id_prefix.is_some() {
        stored = reader.keys_page(caller.workspace(), &wanted).await?;
    }
    let mut behind = None;
    if stored.is_empty() {
        // A name may begin like an id.
        let looks_through = !search.is_empty() || state.is_some();
        let mut wanted = KeyListFilter { id_prefix: None, ..wanted };
        if looks_through {
            wanted.until = reader.key_behind(caller.workspace(), &wanted, LOOKED_THROUGH).await?;
        }
        stored = reader.keys_page(caller.workspace(), &wanted).await?;
        behind = wanted.until;
    }
    let next = stored.get(paging.limit).map(|row| (row.key.created_at, row.key.id.clone()));
    let next = next.or(behind).map(|(at, id)| format!("{}.{id}", at.0));
    stored.truncate(paging.limit);
    let mut ids: Vec<_> = stored.iter().map(|row| row.key.api_id.clone()).collect();
    ids.sort();
    ids.dedup();
    let names = reader.api_names(caller.workspace(), &ids).await?;
    drop(reader);
    let metered = stored.iter().filter(|row| row.key.credits.is_some());
    let metered: Vec<_> = metered.map(|row| row.key.id.clone()).collect();
    let left = credits::balances(app, &metered).await?;
    let row = |stored: StoredKey| KeyListItem {
        state: KeyStatus::of(&stored.key, left.get(&stored.key.id).copied(), now),
        api_name: names
            .iter()
            .find(|(id, _)| *id == stored.key.api_id)
            .map_or_else(String::new, |(_, name)| name.clone()),
        stored,
    };
    let mut items: Vec<_> = stored.into_iter().map(row).collect();
    items.retain(|row| state.is_none_or(|state| row.state == state));
    Ok(Page { items, next })
}

/// What is no cursor is the beginning.
fn beginning(cursor: &str) -> Option<KeyCursor> {
    let (at, id) = cursor.split_once('.')?;
    Some((Timestamp(at.parse().ok()?), KeyId::from(id)))
}

/// A limit that verifications of a key are held to, and how it stands.
#[derive(Debug)]
pub struct LimitUsage {
    pub name: String,
    pub limit: i64,
    pub duration_ms: i64,
    pub auto_apply: bool,
    /// Whether all keys of the identity share it.
    pub is_shared: bool,
    /// Absent: nobody can tell at the moment.
    pub seen: Option<WindowUsage>,
}

/// A key, and what it hangs together with.
#[derive(Debug)]
pub struct KeyDetails {
    pub found: FoundKey,
    pub state: KeyStatus,
    pub api: Api,
    pub roles: Vec<Role>,
    pub is_recoverable: bool,
    pub gauges: Vec<LimitUsage>,
    /// What the bank has of its credits. Absent: they are unlimited.
    pub account: Option<CreditAccount>,
    /// When its credits come back.
    pub refills_at: Option<Timestamp>,
}

/// All there is to know of a key, its secret left out. Nothing is taken from its limits.
pub async fn get_details(app: &App, caller: &Caller, id: &KeyId) -> Result<KeyDetails> {
    let found = get::get(app, caller, id, DecryptMode::None).await?;
    let stored = found.view.stored();
    let workspace = caller.workspace();
    let mut reader = app.store.read_balances().await?;
    let api = reader.api(workspace, &stored.key.api_id).await?;
    let api = apis::require_not_deleted(api, &stored.key.api_id)?;
    let roles = match stored.role_ids.as_slice() {
        [] => Vec::new(),
        ids => reader.roles(workspace, ids).await?,
    };
    let is_recoverable = !reader.sealed_keys(workspace, std::slice::from_ref(id)).await?.is_empty();
    let account = reader.account(id).await?;
    drop(reader);
    let gauges = gauges(app, &found).await?;
    let now = app.clock.now();
    let left = found.credits.map(|(left, _)| left);
    let refill = found.credits.and_then(|(_, refill)| refill);
    Ok(KeyDetails {
        state: KeyStatus::of(&stored.key, left, now),
        refills_at: refill.map(|refill| refill::next_refill_at(&refill, now)),
        found,
        api,
        roles,
        is_recoverable,
        gauges,
        account,
    })
}

async fn gauges(app: &App, found: &FoundKey) -> Result<Vec<LimitUsage>> {
    let limits = &found.view.limits;
    let window = |limit: &Arc<ResolvedLimit>| {
        Window::new(limit.counter.clone(), limit.limit, limit.duration_ms, 0)
    };
    let seen = admission::peek(app, limits.iter().map(window).collect()).await?;
    let own = &found.view.stored().ratelimits;
    let gauge = |(at, limit): (usize, &Arc<ResolvedLimit>)| LimitUsage {
        name: limit.name.clone(),
        limit: limit.limit,
        duration_ms: limit.duration_ms,
        auto_apply: limit.auto_apply,
        is_shared: own.iter().all(|known| known.name != limit.name),
        seen: seen.as_ref().and_then(|seen| seen.get(at)).copied(),
    };
    Ok(limits.iter().enumerate().map(gauge).collect())
}

/// Something that was done to a key.
#[derive(Debug)]
pub struct KeyActivity {
    pub at: Timestamp,
    pub event: String,
    pub who: String,
    /// What was done to its credits, where the entry tells it.
    pub credits: Option<Value>,
}

/// What was last done to a key, the latest first.
pub async fn list_activity(
    app: &App,
    caller: &Caller,
    looked: &KeyDetails,
) -> Result<Vec<KeyActivity>> {
    let key = &looked.found.view.stored().key;
    caller.require_on(Action::ReadKey, &key.api_id)?;
    let mut reader = app.store.read().await?;
    let since = key.created_at;
    let through = ENTRIES_LOOKED_THROUGH;
    let entries = reader.key_entries(caller.workspace(), &key.id, since, through, ENTRIES_MAX);
    let entries = entries.await?;
    let deed = |entry: StoredEntry| KeyActivity {
        at: entry.at,
        who: entry.actor_name.unwrap_or(entry.actor_id),
        event: entry.event,
        credits: credits_meta(&entry.targets, &key.id),
    };
    Ok(entries.into_iter().map(deed).collect())
}

fn credits_meta(targets: &str, key: &KeyId) -> Option<Value> {
    let targets: Vec<Value> = serde_json::from_str(targets).ok()?;
    let target = targets.into_iter().find(|target| target["id"] == key.as_str())?;
    target.pointer("/meta/credits").filter(|told| !told.is_null()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_a_moment_and_an_id_and_what_is_none_is_the_beginning() {
        assert_eq!(beginning("12.key_1"), Some((Timestamp(12), KeyId::from("key_1"))));
        for wrong in ["", "key_1", "x.key_1", ".key_1"] {
            assert_eq!(beginning(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_an_entry_tells_of_the_credits_of_a_key_is_found_and_of_others_is_not() {
        let targets = r#"[{"id":"key_1","meta":{"credits":{"set":5}}},{"id":"key_2"}]"#;

        let told = credits_meta(targets, &KeyId::from("key_1"));
        assert_eq!(told, Some(serde_json::json!({ "set": 5 })));
        assert_eq!(credits_meta(targets, &KeyId::from("key_2")), None);
        assert_eq!(credits_meta("no list", &KeyId::from("key_1")), None);
    }
}
