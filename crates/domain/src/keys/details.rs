//! The details of one key, for display.

use std::sync::Arc;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::{Api, CreditAccount, Key, KeySummary, Migration, Role};
use serde_json::Value;
use store::StoredEntry;

use super::get::{self, DecryptMode, FoundKey};
use crate::admission::{self, WindowUsage};
use crate::caller::Caller;
use crate::context::Context;
use crate::keys::Keys;
use crate::permission::Action;
use crate::resolved_key::ResolvedLimit;
use crate::{apis, credits, refill};

/// The maximum number of audit entries returned for a key.
const ENTRIES_MAX: i64 = 25;

/// Whether a key verifies, by its own state alone; in the order of the verification checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStatus {
    Active,
    Disabled,
    Expired,
    /// The key has no credits left.
    Exhausted,
}

impl KeyStatus {
    pub const ALL: [Self; 4] = [Self::Active, Self::Disabled, Self::Expired, Self::Exhausted];

    /// Returns the status of a key with `left` credits; `None` means unlimited.
    pub fn from_key(key: &Key, left: Option<i64>, now: Timestamp) -> Self {
        Self::determine(key.is_enabled, key.expires_at, left, now)
    }

    /// Returns the status of a key in a list, like [`Self::from_key`].
    pub fn from_summary(key: &KeySummary, left: Option<i64>, now: Timestamp) -> Self {
        Self::determine(key.is_enabled, key.expires_at, left, now)
    }

    fn determine(
        is_enabled: bool,
        expires_at: Option<Timestamp>,
        left: Option<i64>,
        now: Timestamp,
    ) -> Self {
        if !is_enabled {
            return Self::Disabled;
        }
        if expires_at.is_some_and(|expires| now > expires) {
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

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// Returns the status of each key, in their order.
pub async fn list_statuses<'a>(
    context: &Context,
    keys: impl Iterator<Item = &'a KeySummary> + Clone,
) -> Result<Vec<KeyStatus>> {
    let metered = keys.clone().filter(|key| key.is_metered);
    let metered: Vec<_> = metered.map(|key| key.id.clone()).collect();
    let left = credits::list_balances(context, &metered, false).await?;
    let now = context.clock.now();
    let status = |key: &KeySummary| KeyStatus::from_summary(key, left.get(&key.id).copied(), now);
    Ok(keys.map(status).collect())
}

/// A limit that applies to verifications of a key, and its current usage.
#[derive(Debug)]
pub struct LimitUsage {
    pub name: String,
    pub limit: i64,
    pub duration_ms: i64,
    pub auto_apply: bool,
    /// Whether all keys of the identity share it.
    pub is_shared: bool,
    /// Absent: the usage is unknown at the moment.
    pub usage: Option<WindowUsage>,
}

/// A key and the entities that belong to it.
#[derive(Debug)]
pub struct KeyDetails {
    pub found_key: FoundKey,
    pub status: KeyStatus,
    pub api: Api,
    /// The import that the key is from. Absent also if it was imported as `prefixed-api-key` and has been used since.
    pub migration: Option<Migration>,
    pub roles: Vec<Role>,
    pub is_recoverable: bool,
    pub limit_usages: Vec<LimitUsage>,
    /// The credit account in the database. Absent: credits are unlimited.
    pub account: Option<CreditAccount>,
    /// When the credits are refilled next.
    pub next_refill_at: Option<Timestamp>,
}

/// Returns the details of a key without its secret. Does not consume its limits.
pub async fn get_details(keys: &Keys, caller: &Caller, id: &KeyId) -> Result<KeyDetails> {
    let found_key = get::get(keys, caller, id, DecryptMode::None).await?;
    let stored = &found_key.stored;
    let workspace = caller.workspace_id();
    let mut reader = keys.context.store.read_balances().await?;
    let api = reader.find_api(workspace, &stored.key.api_id).await?;
    let api = apis::require_not_deleted(api, &stored.key.api_id)?;
    let roles = match stored.role_ids.as_slice() {
        [] => Vec::new(),
        ids => reader.list_roles_by_ids(workspace, ids).await?,
    };
    let is_recoverable =
        !reader.list_sealed_keys(workspace, std::slice::from_ref(id)).await?.is_empty();
    let account = reader.find_account(id).await?;
    let migration = reader.find_migration_of_key(workspace, id).await?;
    drop(reader);
    let limit_usages = load_limit_usages(&keys.context, &found_key).await?;
    let now = keys.context.clock.now();
    let left = found_key.credits.map(|(left, _)| left);
    let refill = found_key.credits.and_then(|(_, refill)| refill);
    Ok(KeyDetails {
        status: KeyStatus::from_key(&stored.key, left, now),
        next_refill_at: refill.map(|refill| refill::next_refill_at(&refill, now)),
        found_key,
        api,
        migration,
        roles,
        is_recoverable,
        limit_usages,
        account,
    })
}

async fn load_limit_usages(context: &Context, found_key: &FoundKey) -> Result<Vec<LimitUsage>> {
    let limits = &found_key.resolved.limits;
    let windows = limits.iter().map(|limit| limit.window(context, 0)).collect();
    let usage = admission::peek(context, windows).await?;
    let limit_usage = |(at, limit): (usize, &Arc<ResolvedLimit>)| LimitUsage {
        name: limit.name.to_string(),
        limit: limit.limit,
        duration_ms: limit.duration_ms,
        auto_apply: limit.auto_apply,
        is_shared: limit.is_shared,
        usage: usage.as_ref().and_then(|usage| usage.get(at)).copied(),
    };
    Ok(limits.iter().enumerate().map(limit_usage).collect())
}

/// An operation on a key.
#[derive(Debug)]
pub struct KeyActivity {
    pub entry: StoredEntry,
    /// The change of its credits, if the entry records it.
    pub credits: Option<Value>,
}

/// Lists the latest operations on a key, latest first.
pub async fn list_activity(
    context: &Context,
    caller: &Caller,
    details: &KeyDetails,
) -> Result<Vec<KeyActivity>> {
    let key = &details.found_key.stored.key;
    caller.require_on(Action::ReadKey, &key.api_id)?;
    let mut reader = context.store.read().await?;
    let since = key.created_at;
    let entries =
        reader.list_key_audit_entries(caller.workspace_id(), &key.id, since, ENTRIES_MAX).await?;
    let activity =
        |entry: StoredEntry| KeyActivity { credits: credits_meta(&entry.targets, &key.id), entry };
    Ok(entries.into_iter().map(activity).collect())
}

fn credits_meta(targets: &str, key: &KeyId) -> Option<Value> {
    let targets: Vec<Value> = serde_json::from_str(targets).ok()?;
    let target = targets.into_iter().find(|target| target["id"] == key.as_str())?;
    target.pointer("/meta/credits").filter(|credits| !credits.is_null()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_meta_is_none_when_entry_has_no_credits_of_the_key() {
        let targets = r#"[{"id":"key_1","meta":{"credits":{"set":5}}},{"id":"key_2"}]"#;

        let credits = credits_meta(targets, &KeyId::from("key_1"));
        assert_eq!(credits, Some(serde_json::json!({ "set": 5 })));
        assert_eq!(credits_meta(targets, &KeyId::from("key_2")), None);
        assert_eq!(credits_meta("no list", &KeyId::from("key_1")), None);
    }
}
