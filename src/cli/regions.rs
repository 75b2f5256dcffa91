//! `keyward region`: lists the regions that share limits, and moves what they count.

use clap::Subcommand;
use domain::homes::{self, PlannedMove, RegionUse};
use foundation::config::Settings;
use foundation::id::WorkspaceId;
use serde_json::{Value, json};

use super::CommandResult;
use super::commands::open_app;
use super::output::{CommandOutput, Table};

#[derive(Subcommand)]
pub enum RegionCommand {
    /// List the regions with the numbers of APIs, identities and namespaces whose limits each counts
    List,
    /// Move the limits of an API, an identity or a namespace to another region, from the next windows on
    Move {
        /// ID of the API, the identity or the namespace
        id: String,
        /// Name of the region that counts them from then on
        #[arg(long, value_name = "REGION")]
        to: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
}

pub async fn run(settings: Settings, out: CommandOutput, command: RegionCommand) -> CommandResult {
    let app = open_app(settings).await?;
    match command {
        RegionCommand::List => {
            let all = homes::list_regions(&app.context).await?;
            let rows = all.iter().map(region_row).collect();
            let header = &["REGION", "APIS", "IDENTITIES", "NAMESPACES"];
            let table = Table { items: "regions", header, rows };
            out.write_table(table, all.iter().map(region_json).collect());
        }
        RegionCommand::Move { id, to, workspace } => {
            let workspace = WorkspaceId::from(workspace);
            let planned = homes::move_as_operator(&app.context, &workspace, &id, &to).await?;
            let PlannedMove { from, to, at } = planned;
            let time = at.to_calendar();
            let text = format!(
                "{to} counts the limits of {id} in windows that begin at {time:.0} or later, {from} in earlier ones"
            );
            out.write(&text, &json!({ "id": id, "from": from, "to": to, "movesAt": at }));
        }
    }
    app.context.store.close().await;
    Ok(())
}

fn region_row(region: &RegionUse) -> Vec<String> {
    let RegionUse { name, apis, identities, namespaces } = region;
    vec![name.clone(), apis.to_string(), identities.to_string(), namespaces.to_string()]
}

fn region_json(region: &RegionUse) -> Value {
    let RegionUse { name, apis, identities, namespaces } = region;
    json!({ "region": name, "apis": apis, "identities": identities, "namespaces": namespaces })
}
