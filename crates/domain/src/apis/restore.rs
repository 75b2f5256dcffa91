//! Restoring a deleted API.

use foundation::error::{Error, ResourceRef, Result};
use foundation::id::ApiId;
use foundation::model::Api;
use store::{HomeOwner, freshness};

use super::{record, require_not_deleted};
use crate::audit::{Actor, AuditEvent};
use crate::caller::Caller;
use crate::context::Context;
use crate::homes;
use crate::permission::Action;

/// Restores an API. Its keys that were not deleted themselves verify again at once. If the region of its limits was removed, this
/// one counts them.
pub async fn restore(context: &Context, caller: &Caller, id: &ApiId) -> Result<Api> {
    caller.require(Action::CreateApi)?;
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    if !tx.restore_api(caller.workspace_id(), id).await? {
        return Err(Error::not_found(ResourceRef::Api(id.clone())));
    }
    let mut api = require_not_deleted(tx.find_api(caller.workspace_id(), id).await?, id)?;
    let owner = HomeOwner::Api(id.clone());
    let change = homes::store_if_replaced(context, &mut tx, &owner, &mut api.home).await?;
    record(&mut tx, Actor::Caller(caller), &api, AuditEvent::ApiRestored, change, now).await?;
    // Replicas may have cached that keys of this API do not exist.
    tx.record_change(freshness::CacheTag::All);
    context.commit(tx).await?;
    Ok(api)
}
