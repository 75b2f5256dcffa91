//! Restoring a deleted API.

use foundation::error::{Error, ResourceRef, Result};
use foundation::id::ApiId;
use foundation::model::Api;
use store::freshness;

use super::{record, require_not_deleted};
use crate::audit::{Actor, AuditEvent, FieldChanges};
use crate::caller::Caller;
use crate::context::Context;
use crate::permission::Action;

/// Restores an API. Its keys that were not deleted themselves verify again at once.
pub async fn restore(context: &Context, caller: &Caller, id: &ApiId) -> Result<Api> {
    caller.require(Action::CreateApi)?;
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    if !tx.restore_api(caller.workspace_id(), id).await? {
        return Err(Error::not_found(ResourceRef::Api(id.clone())));
    }
    let api = require_not_deleted(tx.find_api(caller.workspace_id(), id).await?, id)?;
    let (actor, change) = (Actor::Caller(caller), FieldChanges::default());
    record(&mut tx, actor, &api, AuditEvent::ApiRestored, change, now).await?;
    // Replicas may have cached that keys of this API do not exist.
    tx.record_change(freshness::CacheTag::All);
    context.commit(tx).await?;
    Ok(api)
}
