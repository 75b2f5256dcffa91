//! Listing the keys of an identity, across all APIs.

use foundation::error::Result;
use foundation::id::IdentityId;
use foundation::model::Key;

use super::super::caller::Caller;
use super::super::page::{Page, Paging};
use super::super::permission::Action;
use super::super::users::SIZE_MAX;
use crate::app::App;

/// Lists a page of the keys, by id.
pub async fn of_identity(
    app: &App,
    caller: &Caller,
    identity: &IdentityId,
    paging: &Paging,
) -> Result<Page<Key>> {
    caller.require(Action::ReadKey)?;
    let listing = paging.listing();
    let mut reader = app.store.read().await?;
    let rows = reader.keys_of_identity(caller.workspace(), identity, &listing).await?;
    let keys = rows.into_iter().map(|stored| stored.key).collect();
    Ok(Page::new(keys, paging, |key: &Key| &key.id))
}

/// Returns the number of keys, counted up to [`SIZE_MAX`] + 1.
pub async fn count_of_identity(app: &App, caller: &Caller, identity: &IdentityId) -> Result<i64> {
    caller.require(Action::ReadKey)?;
    let mut reader = app.store.read().await?;
    reader.count_keys_of_identity(caller.workspace(), identity, SIZE_MAX + 1).await
}
