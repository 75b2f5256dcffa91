//! `keyward signing-key`: lists and rotates the keys that sign assertions.

use clap::Subcommand;
use domain::{root_keys, signing_keys};
use foundation::config::Settings;
use serde_json::{Value, json};
use store::{SigningKeyState, StoredSigningKey};

use super::CommandResult;
use super::commands::open_app;
use super::output::{CommandOutput, Table, format_time};

#[derive(Subcommand)]
pub enum SigningKeyCommand {
    /// List the signing keys that verifiers must know
    List,
    /// Sign with the next key from now on; the current one stays published until its assertions have expired
    Rotate {
        /// Rotate even if verifiers may not know the next key yet
        #[arg(long)]
        force: bool,
    },
}

pub async fn run(
    settings: Settings,
    out: CommandOutput,
    command: SigningKeyCommand,
) -> CommandResult {
    let app = open_app(settings).await?;
    match command {
        SigningKeyCommand::List => {
            let all = signing_keys::list(&app.context).await?;
            let rows = all.iter().map(signing_key_row).collect();
            let table = Table { items: "signing keys", header: &["ID", "STATE", "CREATED"], rows };
            out.write_table(table, all.iter().map(signing_key_json).collect());
        }
        SigningKeyCommand::Rotate { force } => {
            root_keys::bootstrap_workspace(&app.context).await?;
            let rotated = signing_keys::rotate_as_operator(&app.context, force).await?;
            let (id, retired) = (&rotated.current.key.id, &rotated.retired);
            let retired = retired.as_ref().map(|retired| &retired.key.id);
            let text = match retired {
                None => format!("created {id}, which signs from now on"),
                Some(retired) => format!("{id} signs from now on instead of {retired}"),
            };
            out.write(&text, &json!({ "signingKeyId": id, "retired": retired }));
        }
    }
    app.context.store.close().await;
    Ok(())
}

fn signing_key_row(stored: &StoredSigningKey) -> Vec<String> {
    let state = state_name(stored.state()).to_owned();
    vec![stored.key.id.to_string(), state, format_time(stored.created_at)]
}

fn signing_key_json(stored: &StoredSigningKey) -> Value {
    json!({
        "signingKeyId": stored.key.id, "state": state_name(stored.state()),
        "createdAt": stored.created_at, "activatedAt": stored.activated_at,
        "retiredAt": stored.retired_at,
    })
}

fn state_name(state: SigningKeyState) -> &'static str {
    match state {
        SigningKeyState::Next => "next",
        SigningKeyState::Current => "current",
        SigningKeyState::Retired => "retired",
    }
}
