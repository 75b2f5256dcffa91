//! The keys of an API.

use foundation::error::{Error, Result, Subject};
use foundation::id::ApiId;
use store::KeyOwnerFilter;

use super::super::apis;
use super::super::caller::Caller;
use super::super::credits;
use super::super::page::{Page, Paging};
use super::super::permission::Action;
use super::super::refill;
use super::get::{DecryptMode, decrypted, may_decrypt};
use super::resolved;
use super::{FoundKey, ResolvedKey};
use crate::app::App;

/// From so many on, a count of an API's keys is remembered.
const MANY_KEYS: i64 = 10_000;

/// Which keys are asked for.
#[derive(Debug)]
pub struct KeyFilter {
    pub api_id: ApiId,
    /// Only those of this user.
    pub of: Option<KeyOwner>,
    pub plaintexts: DecryptMode,
    pub paging: Paging,
}

/// Whose keys are asked for.
#[derive(Debug, Clone)]
pub enum KeyOwner {
    /// The identity of this external id.
    ExternalId(String),
    /// Who has this name with the customer, whether there is an identity of it or not.
    OwnerId(String),
}

/// The keys of an API, by id; disabled and expired ones too. Who may not read them is told that the API does
/// not exist. The number of statements does not depend on how many keys there are.
pub async fn list(app: &App, caller: &Caller, wanted: KeyFilter) -> Result<Page<FoundKey>> {
    let KeyFilter { api_id, of, plaintexts, paging } = wanted;
    let may_read =
        caller.may_on(Action::ReadKey, &api_id) && caller.may_on(Action::ReadApi, &api_id);
    if !may_read {
        return Err(Error::not_found(Subject::Api(api_id)));
    }
    let workspace = caller.workspace();
    let stamp = app.freshness.read_version();
    let mut reader = app.store.read().await?;
    let api = apis::require_not_deleted(reader.api(workspace, &api_id).await?, &api_id)?;
    may_decrypt(app, caller, &api, plaintexts)?;
    let whose = match of {
        None => KeyOwnerFilter::Anybody,
        Some(KeyOwner::OwnerId(owner)) => KeyOwnerFilter::Owner(owner),
        Some(KeyOwner::ExternalId(external_id)) => {
            match reader.identity_of(workspace, &external_id).await? {
                None => return Ok(Page { items: Vec::new(), next: None }),
                Some(identity) => KeyOwnerFilter::Identity(identity),
            }
        }
    };
    let listing = paging.listing();
    let rows = reader.keys_of(workspace, &api_id, &whose, &listing).await?;
    let page = Page::new(rows, &paging, |row| &row.key.id);
    drop(reader);
    let mut plaintexts = decrypted(app, caller, &page.items, plaintexts).await?;
    let views = resolved::assemble_all(app, page.items, stamp).await?;
    let mut items = found(app, views).await?;
    for item in &mut items {
        item.plaintext = plaintexts.remove(&item.view.stored().key.id);
    }
    Ok(Page { items, next: page.next })
}

/// How many keys an API has, whoever they are of, deleted ones not counted; with very many, how many it had a few
/// minutes ago. None where an identity was asked for that is not there.
pub async fn count(
    app: &App,
    caller: &Caller,
    api_id: &ApiId,
    of: Option<&KeyOwner>,
) -> Result<i64> {
    caller.require_on(Action::ReadKey, api_id)?;
    if let Some(KeyOwner::ExternalId(external_id)) = of {
        let identity = app.store.read().await?.identity_of(caller.workspace(), external_id).await?;
        if identity.is_none() {
            return Ok(0);
        }
    }
    let name = (caller.workspace().clone(), api_id.clone());
    if let Some(known) = app.caches.key_counts.get(&name) {
        return Ok(known);
    }
    let counted = app.store.read().await?.count_keys(caller.workspace(), api_id).await?;
    if counted >= MANY_KEYS {
        app.caches.key_counts.insert(name, counted);
    }
    Ok(counted)
}

async fn found(app: &App, views: Vec<ResolvedKey>) -> Result<Vec<FoundKey>> {
    let metered = views.iter().filter(|view| view.is_metered);
    let metered: Vec<_> = metered.map(|view| view.stored().key.id.clone()).collect();
    let left = credits::balances(app, &metered).await?;
    let now = app.clock.now();
    let found = views.into_iter().map(|view| {
        let key = &view.stored().key;
        let refill = key.credits.and_then(|credits| credits.refill);
        let credits = left.get(&key.id).map(|left| (*left, refill));
        let refilled_at = refill::last_refill_at(key, now);
        FoundKey { credits, refilled_at, view, plaintext: None }
    });
    Ok(found.collect())
}
