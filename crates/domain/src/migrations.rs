//! Migrations: sets of keys that were issued by another system and are imported by their hashes.

use foundation::error::{Error, ResourceRef, Result};
use foundation::id::{MigrationId, WorkspaceId};
use foundation::model::{Algorithm, Migration};

use crate::audit::{self, Actor, AuditEvent, Target};
use crate::caller::Caller;
use crate::context::Context;
use crate::form_results;
use crate::names;
use crate::page::{KeyOrder, Page, Paging};
use crate::permission::Action;
pub use store::StoredMigration;

/// The maximum length of a name, in characters.
const NAME_MAX: usize = 255;

/// Creates a migration for an operator. No permission is checked: an operator has access to the server itself.
pub async fn create_as_operator(
    context: &Context,
    workspace: &WorkspaceId,
    algorithm: Algorithm,
    name: Option<String>,
) -> Result<Migration> {
    insert_and_record(context, Actor::Command("cli"), workspace, algorithm, name).await
}

/// Creates a migration for a caller who may create keys.
pub async fn create(
    context: &Context,
    caller: &Caller,
    algorithm: Algorithm,
    name: Option<String>,
) -> Result<Migration> {
    caller.require(Action::CreateKey)?;
    let length = name.as_ref().map_or(0, |name| name.chars().count());
    if length > NAME_MAX {
        let message =
            format!("name has {length} characters: it must have at most {NAME_MAX} characters");
        return Err(Error::invalid("name", message));
    }
    insert_and_record(context, Actor::Caller(caller), caller.workspace_id(), algorithm, name).await
}

async fn insert_and_record(
    context: &Context,
    actor: Actor<'_>,
    workspace: &WorkspaceId,
    algorithm: Algorithm,
    name: Option<String>,
) -> Result<Migration> {
    names::validate("name", name.as_deref().unwrap_or_default())?;
    let now = context.clock.now();
    let (id, workspace_id) = (MigrationId::random(), workspace.clone());
    let migration = Migration { id, workspace_id, name, algorithm, created_at: now };
    let mut tx = context.store.begin().await?;
    tx.insert_migration(&migration).await.map_err(|e| match e.is_foreign_key_violation() {
        true => Error::not_found(ResourceRef::Workspace(workspace.clone())),
        false => e,
    })?;
    let target =
        Target::new("migration", migration.id.as_str()).with_name(migration.name.as_deref());
    audit::record(&mut tx, actor, workspace, now, AuditEvent::MigrationCreated, &[target]).await?;
    if let Actor::Caller(caller) = actor {
        form_results::record(&mut tx, caller, &migration.id, None, now).await?;
    }
    context.commit(tx).await?;
    Ok(migration)
}

/// Lists the migrations of a workspace, sorted by id.
pub async fn list(context: &Context, workspace: &WorkspaceId) -> Result<Vec<Migration>> {
    context.store.read().await?.list_all_migrations(workspace).await
}

/// Lists a page of the migrations of the caller's workspace, the latest or the oldest first.
pub async fn list_for_caller(
    context: &Context,
    caller: &Caller,
    order: KeyOrder,
    paging: &Paging,
) -> Result<Page<StoredMigration>> {
    caller.require(Action::ReadKey)?;
    let mut reader = context.store.read().await?;
    let (workspace, listing) = (caller.workspace_id(), paging.to_page_query());
    let is_latest_first = order == KeyOrder::LatestFirst;
    let rows = reader.list_migrations(workspace, is_latest_first, &listing).await?;
    Ok(Page::new(rows, paging, |row| &row.migration.id))
}

/// Returns a migration and the number of its keys that still have the foreign hash, counted up to `max` plus one.
pub async fn get(
    context: &Context,
    caller: &Caller,
    id: &MigrationId,
    max: i64,
) -> Result<(StoredMigration, i64)> {
    caller.require(Action::ReadKey)?;
    let mut reader = context.store.read().await?;
    let stored = reader.find_stored_migration(caller.workspace_id(), id).await?;
    let stored = stored.ok_or_else(|| Error::not_found(ResourceRef::Migration(id.clone())))?;
    let pending = reader.count_waiting_keys(id, max.saturating_add(1)).await?;
    Ok((stored, pending))
}
