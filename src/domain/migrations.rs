//! Migrations: sets of keys that were issued elsewhere, of which only the hash is known.

use super::audit::{self, Actor, Target};
use crate::app::App;
use crate::error::{Error, Result, Subject};
use crate::id::{MigrationId, WorkspaceId};
use crate::model::{Algorithm, Migration};

/// Makes a migration. The caller is somebody with a shell on the server, who may do anything.
pub async fn create(
    app: &App,
    workspace: &WorkspaceId,
    algorithm: Algorithm,
    name: Option<String>,
) -> Result<Migration> {
    let now = app.clock.now();
    let (id, workspace_id) = (MigrationId::random(), workspace.clone());
    let migration = Migration { id, workspace_id, name, algorithm, created_at: now };
    let mut tx = app.store.begin().await?;
    tx.insert_migration(&migration).await.map_err(|e| match e.points_nowhere() {
        true => Error::not_found(Subject::Workspace(workspace.clone())),
        false => e,
    })?;
    let target = Target::new("migration", migration.id.as_str()).named(migration.name.as_deref());
    let actor = Actor::Command("cli");
    audit::record(&mut tx, actor, workspace, now, "migration.create", &[target]).await?;
    app.commit(tx).await?;
    Ok(migration)
}

/// Those of a workspace, by id.
pub async fn list(app: &App, workspace: &WorkspaceId) -> Result<Vec<Migration>> {
    app.store.read().await?.migrations(workspace).await
}
