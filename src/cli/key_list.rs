//! `keyward key list`: the keys of a workspace or of an API.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use domain::keys::details::KeyStatus;
use domain::keys::search::{self, KeyListItem};
use domain::page::{KeyOrder, Paging};
use foundation::config::Settings;
use foundation::id::ApiId;
use serde_json::{Value, json};

use super::CommandResult;
use super::operator::Operator;
use super::output::{
    CommandOutput, Table, counted, format_start, format_time, or_dash, print_note, print_truncation,
};

/// The maximum number of keys in a list.
const LIMIT_MAX: i64 = 1_000;
/// The maximum number of keys that one page loads.
const PAGE_LIMIT: usize = 100;
/// The maximum number of pages that are read for a list. A search may find nothing on a page.
const PAGES_MAX: usize = 1_000;

#[derive(Args)]
pub struct KeyListOptions {
    /// List only keys of this API
    #[arg(long = "api", value_name = "ID")]
    api_id: Option<String>,
    /// List only keys whose ID, name, start or external ID contains this text
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// List only keys with this status
    #[arg(long, value_parser = status_parser())]
    status: Option<KeyStatus>,
    /// Limit the number of keys, 1 to 1000
    #[arg(
        long,
        default_value = "100",
        value_parser = clap::value_parser!(u16).range(1..=LIMIT_MAX)
    )]
    limit: u16,
    #[arg(long, default_value = "ws_default")]
    workspace: String,
}

/// Parses a status. The help lists all of them.
fn status_parser() -> impl TypedValueParser<Value = KeyStatus> {
    PossibleValuesParser::new(KeyStatus::ALL.map(KeyStatus::as_str))
        .try_map(|status| KeyStatus::parse(&status).ok_or("is not a status"))
}

pub async fn run(settings: Settings, out: CommandOutput, options: KeyListOptions) -> CommandResult {
    let Operator { app, caller } = Operator::open(settings, &options.workspace).await?;
    app.context.connect_redis().await;
    let api = options.api_id.map(ApiId::from);
    let keys_max = usize::from(options.limit);
    let is_searched = options.search.is_some() || options.status.is_some();
    let mut paging = Paging {
        limit: keys_max.min(PAGE_LIMIT),
        search: options.search.unwrap_or_default(),
        ..Paging::default()
    };
    let mut keys: Vec<KeyListItem> = Vec::new();
    let mut has_next_page = false;
    for _ in 0..PAGES_MAX {
        let page = search::list_page(
            &app.context,
            &caller,
            api.as_ref(),
            options.status,
            KeyOrder::LatestFirst,
            &paging,
        )
        .await?;
        keys.extend(page.items);
        has_next_page = page.next_start.is_some();
        match page.next_start {
            Some(next) if keys.len() < keys_max => paging.start = next,
            _ => break,
        }
    }
    let has_more = has_next_page || keys.len() > keys_max;
    keys.truncate(keys_max);
    let header = &["ID", "API", "NAME", "START", "STATUS", "EXTERNAL ID", "EXPIRES", "CREATED"];
    let rows = keys.iter().map(key_row).collect();
    out.write_table(Table { items: "keys", header, rows }, keys.iter().map(key_json).collect());
    if has_more {
        let shown = counted(keys.len(), "key", "keys");
        match is_searched {
            // A search may end before all keys were compared.
            true => print_note(&format!("Showing {shown}. There may be more.")),
            false => {
                let shown = format!("the latest {shown}");
                print_truncation(&shown, options.limit.into(), LIMIT_MAX, "--search finds a key");
            }
        }
    }
    app.context.close_store().await;
    Ok(())
}

fn key_row(item: &KeyListItem) -> Vec<String> {
    let key = &item.key;
    vec![
        key.id.to_string(),
        item.api_name.clone(),
        or_dash(key.name.as_deref()),
        format_start(&key.start),
        item.status.as_str().to_owned(),
        or_dash(key.owner_id.as_deref()),
        or_dash(key.expires_at.map(format_time)),
        format_time(key.created_at),
    ]
}

fn key_json(item: &KeyListItem) -> Value {
    let key = &item.key;
    json!({
        "keyId": key.id, "apiId": key.api_id, "name": key.name, "start": key.start,
        "status": item.status.as_str(), "enabled": key.is_enabled, "externalId": key.owner_id,
        "expires": key.expires_at, "createdAt": key.created_at, "updatedAt": key.updated_at,
        "lastUsedAt": key.last_used_at,
    })
}
