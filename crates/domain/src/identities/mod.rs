//! Identities: the end users of a customer, with rate limits that all keys of an identity share.

mod restore;
mod snapshot;

pub use restore::restore;
pub use snapshot::change_from_snapshot;

use foundation::clock::Timestamp;
use foundation::error::{Error, ResourceRef, Result};
use foundation::id::IdentityId;
use foundation::model::{Identity, IdentitySummary, Meta, Ratelimit};
use snapshot::IdentitySnapshot;
use store::{IdentitySelection, LimitOwner, Tx, freshness};

use crate::audit::{AuditBatch, AuditEvent, FieldChanges, Target};
use crate::caller::Caller;
use crate::context::Context;
use crate::form_results;
use crate::keys::{NewRatelimit, to_ratelimits};
use crate::page::{Page, PageOrder, Paging};
use crate::permission::Action;

/// The maximum size of the metadata of an identity, in bytes of the JSON text as sent.
pub const META_MAX_BYTES: usize = 1024 * 1024;

/// The maximum number of identities that an index finds. Of more, a page is found sooner in the order of the list: ids are
/// random, so matches are spread evenly.
const INDEXED_ROWS_MAX: i64 = 2_000;
/// The maximum number of identities that a search compares for one page; the next page continues after them.
pub const SEARCH_ROWS_MAX: i64 = 20_000;

/// A reference to an identity in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityRef {
    Id(String),
    ExternalId(String),
    /// An id or, if no identity has this id, an external id.
    IdOrExternalId(String),
}

impl IdentityRef {
    /// Returns the id and the external id to search for. The empty string matches nothing: no identity has an empty id
    /// or external id.
    fn to_id_and_external_id(&self) -> (&str, &str) {
        match self {
            Self::Id(id) => (id, ""),
            Self::ExternalId(id) => ("", id),
            Self::IdOrExternalId(text) => (text, text),
        }
    }
}

/// The fields of an identity to create.
#[derive(Debug)]
pub struct NewIdentity {
    pub external_id: String,
    pub meta: Option<Meta>,
    /// If a name occurs twice, the last entry applies.
    pub ratelimits: Vec<NewRatelimit>,
}

/// A change to an identity. Absent fields keep their values.
#[derive(Debug, Default)]
pub struct IdentityChange {
    pub meta: Option<Meta>,
    /// Replaces all limits. A limit with the name of an existing one keeps its id and its count.
    pub ratelimits: Option<Vec<NewRatelimit>>,
}

/// Creates an identity.
pub async fn create(context: &Context, caller: &Caller, new: NewIdentity) -> Result<IdentityId> {
    caller.require(Action::CreateIdentity)?;
    new.meta.as_ref().map_or(Ok(()), validate_meta)?;
    let now = context.clock.now();
    let identity = Identity {
        id: IdentityId::random(),
        external_id: new.external_id,
        meta: new.meta,
        ratelimits: to_ratelimits(new.ratelimits),
        home: context.home_of_new(),
    };

    let mut tx = context.store.begin().await?;
    insert_identity(&mut tx, caller, &identity, now).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let change = FieldChanges::created(&IdentitySnapshot::from_identity(&identity))?;
    entries.add_change(AuditEvent::IdentityCreated, &[target(&identity)], change);
    replace_limits(&mut tx, caller, &mut entries, &identity, &[], &identity.ratelimits).await?;
    entries.write(&mut tx).await?;
    form_results::record(&mut tx, caller, &identity.id, None, now).await?;
    context.commit(tx).await?;

    Ok(identity.id)
}

/// Inserts an identity. Its external id must be free.
async fn insert_identity(
    tx: &mut Tx,
    caller: &Caller,
    identity: &Identity,
    now: Timestamp,
) -> Result<()> {
    let inserted = tx.insert_identity(caller.workspace_id(), identity, now).await;
    inserted.map_err(|e| match e.is_unique_violation_of("identities_external_id_unique") {
        true => Error::AlreadyExists(ResourceRef::Identity(identity.external_id.clone())),
        false => e,
    })
}

/// Returns an identity. The caller needs permission to read it.
pub async fn get(context: &Context, caller: &Caller, reference: &IdentityRef) -> Result<Identity> {
    let (id, external_id) = reference.to_id_and_external_id();
    let mut reader = context.store.read().await?;
    let found = reader.find_identity(caller.workspace_id(), id, external_id).await?;
    let identity = found.ok_or_else(|| not_found_error(reference))?;
    caller.require_on(Action::ReadIdentity, &identity.id)?;
    Ok(identity)
}

/// The environment of all identities, for the API version that has environments (v1).
pub const DEFAULT_ENVIRONMENT: &str = "default";

/// Lists a page of the identities that the root key may read, sorted by id. A page may have fewer items than its limit and
/// still have a successor: when they have too many bytes, or when a search has compared its maximum. With `environment`,
/// a root key that may read the whole environment may read all of them.
pub async fn list(
    context: &Context,
    caller: &Caller,
    environment: Option<&str>,
    paging: &Paging,
) -> Result<Page<Identity>> {
    let may_all = environment.map_or_else(
        || caller.is_allowed(Action::ReadIdentity),
        |environment| caller.is_allowed_on(Action::ReadIdentity, &environment),
    );
    let readable = match may_all {
        true => None,
        false => Some(caller.allowed_ids(Action::ReadIdentity)),
    };
    if readable.as_ref().is_some_and(Vec::is_empty) {
        caller.require(Action::ReadIdentity)?;
    }
    let (workspace, listing) = (caller.workspace_id(), paging.to_page_query());
    let mut reader = context.store.read().await?;
    let searched = match listing.search.is_empty() {
        true => None,
        false => {
            reader.find_searched_identities(workspace, &listing.search, INDEXED_ROWS_MAX).await?
        }
    };
    let ids = match (readable, searched) {
        (Some(readable), Some(mut searched)) => {
            searched.retain(|id| readable.contains(id));
            Some(searched)
        }
        (ids, None) | (None, ids) => ids,
    };
    // Where the index does not find the text, not all identities are compared at once.
    let end = match listing.search.is_empty() || ids.is_some() {
        true => None,
        false => reader.find_identity_at(workspace, listing.start, SEARCH_ROWS_MAX).await?,
    };
    let ids_or_end = match (&ids, &end) {
        (Some(ids), _) => IdentitySelection::Ids(ids),
        (None, Some(end)) => IdentitySelection::Before(end),
        (None, None) => IdentitySelection::All,
    };
    let found = reader.measure_identities(workspace, ids_or_end, &listing).await?;
    let (mut found, sizes): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let paging = paging.within_bytes(&sizes);
    // Also if an identity of this page is deleted before it is read.
    let next_start = found.get(paging.limit).cloned().or(end);
    found.truncate(paging.limit);
    // Only these are compared again.
    let found = IdentitySelection::Ids(&found);
    let items = reader.list_identities(workspace, found, &paging.to_page_query()).await?;
    Ok(Page { items, next_start })
}

/// Lists a page of all identities by external id, without their metadata and limits. The page starts at an external id; a search
/// has no such order.
pub async fn list_by_external_id(
    context: &Context,
    caller: &Caller,
    paging: &Paging,
) -> Result<Page<IdentitySummary>> {
    caller.require(Action::ReadIdentity)?;
    let (workspace, max) = (caller.workspace_id(), paging.limit_with_lookahead());
    let mut reader = context.store.read().await?;
    let (start, descending) = (&paging.start, paging.order == PageOrder::ByNameDescending);
    let rows = reader.list_identities_by_external_id(workspace, start, descending, max).await?;
    Ok(Page::new(rows, paging, |row| &row.external_id))
}

/// Returns the number of identities of an environment. The root key must be allowed to read all of them.
pub async fn count(context: &Context, caller: &Caller, environment: &str) -> Result<i64> {
    caller.require_on(Action::ReadIdentity, &environment)?;
    context.store.read().await?.count_identities(caller.workspace_id()).await
}

/// Applies a change to an identity in one transaction and returns the changed identity.
pub async fn update(
    context: &Context,
    caller: &Caller,
    reference: &IdentityRef,
    change: IdentityChange,
) -> Result<Identity> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let mut identity = get_for_update(&mut tx, caller, reference, Action::UpdateIdentity).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let no_change = FieldChanges::default();
    let entry = entries.add_change(AuditEvent::IdentityUpdated, &[target(&identity)], no_change);
    let before = IdentitySnapshot::from_identity(&identity);
    if let Some(meta) = change.meta {
        validate_meta(&meta)?;
        tx.set_identity_meta(&identity.id, &meta).await?;
        identity.meta = Some(meta);
    }
    if let Some(limits) = change.ratelimits {
        let after = merge_limits(&identity.ratelimits, to_ratelimits(limits));
        let before = std::mem::take(&mut identity.ratelimits);
        replace_limits(&mut tx, caller, &mut entries, &identity, &before, &after).await?;
        identity.ratelimits = after;
    }
    entries.set_change(
        entry,
        FieldChanges::updated(&before, &IdentitySnapshot::from_identity(&identity))?,
    );
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Identity(identity.id.clone()));
    context.commit(tx).await?;

    Ok(identity)
}

/// Deletes an identity and its limits. Its keys continue to work without an identity.
pub async fn delete(context: &Context, caller: &Caller, reference: &IdentityRef) -> Result<()> {
    let mut tx = context.store.begin().await?;
    let (id, external_id) = reference.to_id_and_external_id();
    let found = tx.find_identity(caller.workspace_id(), id, external_id).await?;
    // Keys are locked before the identity: changes of a key lock in the same order. Only who may delete it may lock them.
    let mut keys = match found.filter(|it| caller.is_allowed_on(Action::DeleteIdentity, &it.id)) {
        Some(found) => tx.unlink_identity(&found.id).await?,
        None => Vec::new(),
    };
    let identity = get_for_update(&mut tx, caller, reference, Action::DeleteIdentity).await?;
    // A restored identity gets back what had it when it was deleted, also keys that got it before it was locked.
    keys.extend(tx.unlink_identity(&identity.id).await?);
    tx.delete_identity(&identity.id).await?;
    let keys = Some(keys.iter().map(ToString::to_string).collect());
    let snapshot = IdentitySnapshot { keys, ..IdentitySnapshot::from_identity(&identity) };
    let mut entries = AuditBatch::for_caller(caller, context.clock.now());
    let change = FieldChanges::deleted(&snapshot)?;
    entries.add_change(AuditEvent::IdentityDeleted, &[target(&identity)], change);
    for limit in &identity.ratelimits {
        entries.add(AuditEvent::IdentityLimitDeleted, &[target(&identity), limit_target(limit)]);
    }
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Identity(identity.id));
    context.commit(tx).await
}

/// Returns the identity, locked until the transaction ends, if the root key may perform the action on it. A root key
/// that may do so only on some identities cannot learn which others exist.
async fn get_for_update(
    tx: &mut Tx,
    caller: &Caller,
    reference: &IdentityRef,
    action: Action,
) -> Result<Identity> {
    let may_all = caller.is_allowed(action);
    if !may_all && caller.allowed_ids(action).is_empty() {
        caller.require(action)?;
    }
    let (id, external_id) = reference.to_id_and_external_id();
    match tx.lock_identity(caller.workspace_id(), id, external_id).await? {
        Some(identity) if may_all || caller.is_allowed_on(action, &identity.id) => Ok(identity),
        None if may_all => Err(not_found_error(reference)),
        Some(_) | None => Err(Error::Forbidden(action.to_wildcard_tuple())),
    }
}

fn validate_meta(meta: &Meta) -> Result<()> {
    let bytes = meta.as_str().len();
    match bytes <= META_MAX_BYTES {
        true => Ok(()),
        false => Err(Error::invalid(
            "/properties/meta",
            format!("meta has {bytes} bytes: it must have at most {META_MAX_BYTES}"),
        )),
    }
}

fn not_found_error(reference: &IdentityRef) -> Error {
    Error::not_found(match reference {
        IdentityRef::Id(id) => ResourceRef::IdentityId(id.clone()),
        IdentityRef::ExternalId(text) | IdentityRef::IdOrExternalId(text) => {
            ResourceRef::Identity(text.clone())
        }
    })
}

/// Returns the new limits, sorted by name. A limit with the name of an existing one keeps its id.
fn merge_limits(before: &[Ratelimit], mut after: Vec<Ratelimit>) -> Vec<Ratelimit> {
    for limit in &mut after {
        if let Some(old) = before.iter().find(|old| old.name == limit.name) {
            limit.id = old.id.clone();
        }
    }
    after.sort_by(|a, b| a.name.cmp(&b.name));
    after
}

/// Replaces the limits of an identity with `after` and records the differences.
async fn replace_limits(
    tx: &mut Tx,
    caller: &Caller,
    entries: &mut AuditBatch<'_>,
    identity: &Identity,
    before: &[Ratelimit],
    after: &[Ratelimit],
) -> Result<()> {
    if before.is_empty() && after.is_empty() {
        return Ok(());
    }
    tx.replace_ratelimits(caller.workspace_id(), LimitOwner::Identity(&identity.id), after).await?;
    for limit in after {
        let event = match before.iter().find(|old| old.id == limit.id) {
            None => AuditEvent::IdentityLimitCreated,
            Some(old) if old != limit => AuditEvent::IdentityLimitUpdated,
            Some(_) => continue,
        };
        entries.add(event, &[target(identity), limit_target(limit)]);
    }
    for limit in before.iter().filter(|old| after.iter().all(|limit| limit.id != old.id)) {
        entries.add(AuditEvent::IdentityLimitDeleted, &[target(identity), limit_target(limit)]);
    }
    Ok(())
}

fn target(identity: &Identity) -> Target<'_> {
    Target::new("identity", identity.id.as_str()).with_name(Some(&identity.external_id))
}

fn limit_target(limit: &Ratelimit) -> Target<'_> {
    Target::new("ratelimit", limit.id.as_str()).with_name(Some(&limit.name))
}
