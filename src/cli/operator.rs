//! The operator as the caller of operations. They run in this process on the server's database, also while the server
//! runs, with the bounds and errors of version 2 of the API. The audit log names the actor `cli`.

use api::{Operation, in_process};
use domain::app::App;
use domain::caller::Caller;
use domain::{root_keys, workspaces};
use foundation::config::Settings;
use foundation::id::WorkspaceId;
use serde::Serialize;
use serde_json::Value;

use super::commands::open_app;
use super::{CommandError, CommandResult};

/// An operator in a workspace.
pub struct Operator {
    pub app: App,
    pub caller: Caller,
}

impl Operator {
    /// Opens the database. The workspace must exist.
    pub async fn open(settings: Settings, workspace: &str) -> Result<Self, CommandError> {
        let app = open_app(settings).await?;
        let caller = authorize(&app, &WorkspaceId::from(workspace)).await?;
        // The key of the vault, for recoverable keys and assertions.
        app.context.reload_master_keys();
        Ok(Self { app, caller })
    }

    /// Runs an operation and returns its reply.
    pub async fn call<O: Operation>(
        &self,
        request: &impl Serialize,
    ) -> Result<Value, CommandError> {
        let body = to_body(request)?;
        Ok(in_process::run_operation(&self.app, &self.caller, O::NAME, body).await?)
    }

    /// Closes the database.
    pub async fn close(self) {
        self.app.context.close_store().await;
    }
}

/// Fails if the workspace does not exist.
pub async fn require_workspace(app: &App, workspace: &WorkspaceId) -> CommandResult {
    authorize(app, workspace).await.map(drop)
}

async fn authorize(app: &App, workspace: &WorkspaceId) -> Result<Caller, CommandError> {
    root_keys::bootstrap_workspace(&app.context).await?;
    Ok(workspaces::authorize_operator(&app.context, workspace).await?)
}

/// Returns the body of a request.
pub fn to_body(request: &impl Serialize) -> Result<String, CommandError> {
    serde_json::to_string(request)
        .map_err(|e| CommandError::Runtime(format!("failed to encode the request: {e}")))
}
