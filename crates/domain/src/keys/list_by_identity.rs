//! Listing the keys of an identity, across all APIs.

use foundation::error::Result;
use foundation::id::IdentityId;
use foundation::model::KeySummary;

use crate::caller::Caller;
use crate::context::Context;
use crate::page::COUNT_MAX;
use crate::page::{Page, Paging};
use crate::permission::Action;

/// Lists a page of the keys, by id.
pub async fn list_by_identity(
    context: &Context,
    caller: &Caller,
    identity: &IdentityId,
    paging: &Paging,
) -> Result<Page<KeySummary>> {
    caller.require(Action::ReadKey)?;
    let listing = paging.to_page_query();
    let mut reader = context.store.read().await?;
    let rows = reader.list_identity_keys(caller.workspace_id(), identity, &listing).await?;
    Ok(Page::new(rows, paging, |key| &key.id))
}

/// Returns the number of keys, counted up to [`COUNT_MAX`] + 1.
pub async fn count_by_identity(
    context: &Context,
    caller: &Caller,
    identity: &IdentityId,
) -> Result<i64> {
    caller.require(Action::ReadKey)?;
    let mut reader = context.store.read().await?;
    reader.count_identity_keys(caller.workspace_id(), identity, COUNT_MAX + 1).await
}
