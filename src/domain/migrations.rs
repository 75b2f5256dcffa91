//! Migrations: sets of keys that were issued elsewhere, of which only the hash is known.

use foundation::error::{Error, Result, Subject};
use foundation::id::{MigrationId, WorkspaceId};
use foundation::model::{Algorithm, Migration};

use super::audit::{self, Actor, Target};
use super::caller::Caller;
use super::names;
use super::page::{Page, Paging};
use super::permission::Action;
use crate::app::App;
pub use store::StoredMigration;

/// The longest name, in characters.
const NAME_MAX: usize = 255;

/// Makes a migration. The caller is somebody with a shell on the server, who may do anything.
pub async fn create(
    app: &App,
    workspace: &WorkspaceId,
    algorithm: Algorithm,
    name: Option<String>,
) -> Result<Migration> {
    add(app, Actor::Command("cli"), workspace, algorithm, name).await
}

/// Makes a migration, for who may take keys in.
pub async fn make(
    app: &App,
    caller: &Caller,
    algorithm: Algorithm,
    name: Option<String>,
) -> Result<Migration> {
    caller.require(Action::CreateKey)?;
    let length = name.as_ref().map_or(0, |name| name.chars().count());
    if length > NAME_MAX {
        let message = format!("name has {length} characters: it must have {NAME_MAX} at most");
        return Err(Error::invalid("name", message));
    }
    add(app, Actor::Caller(caller), caller.workspace(), algorithm, name).await
}

async fn add(
    app: &App,
    actor: Actor<'_>,
    workspace: &WorkspaceId,
    algorithm: Algorithm,
    name: Option<String>,
) -> Result<Migration> {
    names::check("name", name.as_deref().unwrap_or_default())?;
    let now = app.clock.now();
    let (id, workspace_id) = (MigrationId::random(), workspace.clone());
    let migration = Migration { id, workspace_id, name, algorithm, created_at: now };
    let mut tx = app.store.begin().await?;
    tx.insert_migration(&migration).await.map_err(|e| match e.is_foreign_key_violation() {
        true => Error::not_found(Subject::Workspace(workspace.clone())),
        false => e,
    })?;
    let target = Target::new("migration", migration.id.as_str()).named(migration.name.as_deref());
    audit::record(&mut tx, actor, workspace, now, "migration.create", &[target]).await?;
    app.commit(tx).await?;
    Ok(migration)
}

/// Those of a workspace, by id.
pub async fn list(app: &App, workspace: &WorkspaceId) -> Result<Vec<Migration>> {
    app.store.read().await?.migrations(workspace).await
}

/// A page of them, the latest first.
pub async fn page(app: &App, caller: &Caller, paging: &Paging) -> Result<Page<StoredMigration>> {
    caller.require(Action::ReadKey)?;
    let mut reader = app.store.read().await?;
    let rows = reader.migrations_page(caller.workspace(), &paging.listing()).await?;
    Ok(Page::new(rows, paging, |row| &row.migration.id))
}

/// A migration, and how many of its keys are not our own yet, counted up to `max`.
pub async fn get(
    app: &App,
    caller: &Caller,
    id: &MigrationId,
    max: i64,
) -> Result<(StoredMigration, i64)> {
    caller.require(Action::ReadKey)?;
    let mut reader = app.store.read().await?;
    let found = reader.stored_migration(caller.workspace(), id).await?;
    let found = found.ok_or_else(|| Error::not_found(Subject::Migration(id.clone())))?;
    let waiting = reader.count_waiting_keys(id, max.saturating_add(1)).await?;
    Ok((found, waiting))
}
