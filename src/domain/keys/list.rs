//! The keys of an API.

use std::collections::HashMap;

use super::super::apis;
use super::super::caller::Caller;
use super::super::credits;
use super::super::page::{Page, Paging};
use super::super::permission::Action;
use super::find::{decrypted, may_decrypt};
use super::view;
use super::{Found, View};
use crate::app::App;
use crate::error::{Error, Result, Subject};
use crate::id::ApiId;

/// Which keys are asked for.
#[derive(Debug)]
pub struct Wanted {
    pub api_id: ApiId,
    /// Only those of this identity.
    pub external_id: Option<String>,
    /// With their plaintexts, where they are recoverable.
    pub decrypt: bool,
    pub paging: Paging,
}

/// The keys of an API, by id; disabled and expired ones too. Who may not read them is told that the API does
/// not exist. The number of statements does not depend on how many keys there are.
pub async fn list(app: &App, caller: &Caller, wanted: Wanted) -> Result<Page<Found>> {
    let Wanted { api_id, external_id, decrypt, paging } = wanted;
    let may_read =
        caller.may_on(Action::ReadKey, &api_id) && caller.may_on(Action::ReadApi, &api_id);
    if !may_read {
        return Err(Error::not_found(Subject::Api(api_id)));
    }
    let workspace = caller.workspace();
    let stamp = app.freshness.stamp();
    let mut reader = app.store.read().await?;
    let api = apis::live(reader.api(workspace, &api_id).await?, &api_id)?;
    if decrypt {
        may_decrypt(app, caller, &api)?;
    }
    let identity = match &external_id {
        None => None,
        Some(external_id) => match reader.identity_of(workspace, external_id).await? {
            None => return Ok(Page { items: Vec::new(), next: None }),
            found => found,
        },
    };
    let listing = paging.listing();
    let rows = reader.keys_of(workspace, &api_id, identity.as_ref(), &listing).await?;
    let page = Page::new(rows, &paging, |row| &row.key.id);
    drop(reader);
    let mut plaintexts = match decrypt {
        true => decrypted(app, caller, &page.items).await?,
        false => HashMap::new(),
    };
    let views = view::assemble_all(app, page.items, stamp).await?;
    let mut items = found(app, views).await?;
    for item in &mut items {
        item.plaintext = plaintexts.remove(&item.view.stored().key.id);
    }
    Ok(Page { items, next: page.next })
}

async fn found(app: &App, views: Vec<View>) -> Result<Vec<Found>> {
    let metered = views.iter().filter(|view| view.is_metered);
    let metered: Vec<_> = metered.map(|view| view.stored().key.id.clone()).collect();
    let left = credits::balances(app, &metered).await?;
    let found = views.into_iter().map(|view| {
        let key = &view.stored().key;
        let refill = key.credits.and_then(|credits| credits.refill);
        let credits = left.get(&key.id).map(|left| (*left, refill));
        Found { credits, view, plaintext: None }
    });
    Ok(found.collect())
}
