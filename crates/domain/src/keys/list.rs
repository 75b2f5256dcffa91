//! Listing the keys of an API.

use foundation::clock::Monotonic;
use foundation::error::{Error, ResourceRef, Result};
use foundation::id::ApiId;
use store::{KeyOwnerFilter, StoredKey};

use super::get::{DecryptMode, decrypt_plaintexts, is_decryptable};
use super::{FoundKey, ResolvedKey};
use crate::apis;
use crate::caller::Caller;
use crate::context::Context;
use crate::credits;
use crate::keys::Keys;
use crate::page::{Page, Paging};
use crate::permission::Action;
use crate::refill;
use crate::resolved_key as resolved;

/// From this number of keys on, the count of an API is cached.
const CACHED_COUNT_MIN: i64 = 10_000;

/// The keys to list.
#[derive(Debug)]
pub struct KeyFilter {
    pub api_id: ApiId,
    /// Only keys of this owner.
    pub owner: Option<KeyOwner>,
    pub decrypt_mode: DecryptMode,
    /// Whether to fail if what a lease holds is unknown or withheld, instead of leaving it out of the credits.
    pub requires_leases: bool,
    pub paging: Paging,
}

/// The owner of the keys to list.
#[derive(Debug, Clone)]
pub enum KeyOwner {
    /// The identity with this external id.
    ExternalId(String),
    /// The customer's own owner id, whether or not an identity has it.
    OwnerId(String),
}

/// Lists the keys of an API by id, including disabled and expired ones. Without the permission to read them, the API
/// is reported as not found. The number of statements does not depend on the number of keys. A page ends early when its
/// keys have too many bytes.
pub async fn list(context: &Context, caller: &Caller, filter: KeyFilter) -> Result<Page<FoundKey>> {
    let KeyFilter { api_id, owner, decrypt_mode: mode, requires_leases, paging } = filter;
    let may_read = caller.is_allowed_on(Action::ReadKey, &api_id)
        && caller.is_allowed_on(Action::ReadApi, &api_id);
    if !may_read {
        return Err(Error::not_found(ResourceRef::Api(api_id)));
    }
    let workspace = caller.workspace_id();
    let read_version = context.freshness.read_version(Monotonic::now());
    let mut reader = context.store.read().await?;
    let api = apis::require_not_deleted(reader.find_api(workspace, &api_id).await?, &api_id)?;
    is_decryptable(context, caller, &api, mode)?;
    let owner_filter = match owner {
        None => KeyOwnerFilter::Any,
        Some(KeyOwner::OwnerId(owner_id)) => KeyOwnerFilter::OwnerId(owner_id),
        Some(KeyOwner::ExternalId(external_id)) => {
            match reader.find_identity_id(workspace, &external_id).await? {
                None => return Ok(Page { items: Vec::new(), next_start: None }),
                Some(identity) => KeyOwnerFilter::Identity(identity),
            }
        }
    };
    let unbounded = paging.to_page_query();
    let sizes = reader.measure_api_keys(workspace, &api_id, &owner_filter, &unbounded).await?;
    let paging = paging.within_bytes(&sizes);
    let listing = paging.to_page_query();
    let rows = reader.list_api_keys(workspace, &api_id, &owner_filter, &listing).await?;
    let page = Page::new(rows, &paging, |row| &row.key.id);
    drop(reader);
    let mut plaintexts = decrypt_plaintexts(context, caller, &page.items, mode).await?;
    let resolved_keys = resolved::resolve_all(context, page.items, read_version).await?;
    let mut items = load_found_keys(context, resolved_keys, requires_leases).await?;
    for item in &mut items {
        item.plaintext = plaintexts.remove(&item.stored.key.id);
    }
    Ok(Page { items, next_start: page.next_start })
}

/// Returns the number of an API's keys of all owners, without deleted ones. From [`CACHED_COUNT_MIN`] on, the number
/// may be a few minutes old. Returns 0 if `owner` is an identity that does not exist.
pub async fn count(
    keys: &Keys,
    caller: &Caller,
    api_id: &ApiId,
    owner: Option<&KeyOwner>,
) -> Result<i64> {
    caller.require_on(Action::ReadKey, api_id)?;
    if let Some(KeyOwner::ExternalId(external_id)) = owner {
        let identity = keys
            .context
            .store
            .read()
            .await?
            .find_identity_id(caller.workspace_id(), external_id)
            .await?;
        if identity.is_none() {
            return Ok(0);
        }
    }
    let name = (caller.workspace_id().clone(), api_id.clone());
    if let Some(count) = keys.key_counts.get(&name) {
        return Ok(count);
    }
    let counted =
        keys.context.store.read().await?.count_keys(caller.workspace_id(), api_id).await?;
    if counted >= CACHED_COUNT_MIN {
        keys.key_counts.insert(name, counted);
    }
    Ok(counted)
}

/// Adds to resolved keys what their credit accounts and leases hold.
pub(super) async fn load_found_keys(
    context: &Context,
    resolved_keys: Vec<(StoredKey, ResolvedKey)>,
    requires_leases: bool,
) -> Result<Vec<FoundKey>> {
    let metered = resolved_keys.iter().filter(|(_, resolved)| resolved.is_metered());
    let metered: Vec<_> = metered.map(|(stored, _)| stored.key.id.clone()).collect();
    let left = credits::list_balances(context, &metered, requires_leases).await?;
    let now = context.clock.now();
    let found = resolved_keys.into_iter().map(|(stored, resolved)| {
        let key = &stored.key;
        let refill = key.credits.and_then(|credits| credits.refill);
        let credits = left.get(&key.id).map(|left| (*left, refill));
        let refilled_at = refill::last_refill_at(key, now);
        FoundKey { stored, credits, refilled_at, resolved, plaintext: None }
    });
    Ok(found.collect())
}
