//! `keyward credits`: withheld credits.

use clap::Subcommand;
use domain::credits;
use foundation::config::Settings;
use foundation::id::KeyId;
use foundation::model::WithheldCredits;
use serde_json::json;

use super::CommandResult;
use super::commands::open_app;
use super::output::{CommandOutput, Table, counted, format_time};

#[derive(Subcommand)]
pub enum CreditsCommand {
    /// List withheld credits, which keys cannot spend because Redis lost their leases
    List,
    /// Return withheld credits to their accounts; use only if the lost Redis data cannot come back
    Release {
        /// Release the credits of this key
        #[arg(long, required_unless_present = "all")]
        key: Option<String>,
        /// Release the credits of all keys
        #[arg(long, conflicts_with = "key")]
        all: bool,
    },
}

pub async fn run(settings: Settings, out: CommandOutput, command: CreditsCommand) -> CommandResult {
    let app = open_app(settings).await?;
    match command {
        CreditsCommand::List => {
            let withheld = credits::list_withheld(&app.context, None).await?;
            let row = |entry: &WithheldCredits| {
                vec![entry.key_id.to_string(), entry.units.to_string(), format_time(entry.since)]
            };
            let rows = withheld.iter().map(row).collect();
            let header = &["KEY", "WITHHELD", "SINCE"];
            let table = Table { items: "withheld credits", header, rows };
            let entry = |entry: &WithheldCredits| {
                json!({
                    "keyId": entry.key_id, "withheld": entry.units, "since": entry.since,
                })
            };
            out.write_table(table, withheld.iter().map(entry).collect());
        }
        CreditsCommand::Release { key, all: _ } => {
            let key = key.map(KeyId::from);
            let released = credits::release_withheld(&app.ledger, key.as_ref()).await?;
            let text = format!("released {}", counted(released, "credit", "credits"));
            out.write(&text, &json!({ "released": released }));
        }
    }
    app.context.store.close().await;
    Ok(())
}
