//! `keyward export`: keys with their hashes, in the form that `keyward import` reads.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use domain::keys::{self, DecryptMode, FoundKey, KeyFilter};
use domain::page::Paging;
use foundation::config::Settings;
use foundation::id::ApiId;
use foundation::model::{Refill, RefillInterval};
use foundation::secret::KeyHash;
use serde_json::{Value, json};

use super::operator::Operator;
use super::output::{CommandOutput, counted, end_of_output};
use super::{CommandError, CommandResult};

/// The number of keys that are read at once.
const PAGE_LIMIT: usize = 500;

#[derive(Args)]
pub struct ExportOptions {
    /// Export the keys of this API
    #[arg(long = "api", value_name = "ID")]
    api_id: String,
    /// Write to this new file, which only its owner can read [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[arg(long, default_value = "ws_default")]
    workspace: String,
}

pub async fn run(settings: Settings, out: CommandOutput, options: ExportOptions) -> CommandResult {
    let Operator { app, caller } = Operator::open(settings, &options.workspace).await?;
    let api_id = ApiId::from(options.api_id.as_str());
    // Before the file is created, which must not exist.
    domain::apis::get(&app.context, &caller, &api_id).await?;
    app.context.connect_redis().await;
    let mut writer: Box<dyn Write> = match &options.output {
        Some(path) => Box::new(BufWriter::new(create(path)?)),
        None => Box::new(BufWriter::new(io::stdout())),
    };
    let (mut exported, mut pending) = (0, 0);
    let mut start = String::new();
    loop {
        let filter = KeyFilter {
            api_id: api_id.clone(),
            owner: None,
            decrypt_mode: DecryptMode::None,
            // Credits that are left out would be lost where the keys are imported.
            requires_leases: true,
            paging: Paging { start, limit: PAGE_LIMIT, ..Paging::default() },
        };
        let page = keys::list(&app.context, &caller, filter).await?;
        for found in &page.items {
            // The hash of a key that waits for its first use is not that of the whole key.
            let Some(line) = to_line(found) else {
                pending += 1;
                continue;
            };
            match writeln!(writer, "{line}") {
                Ok(()) => exported += 1,
                Err(e) => return end_of_export(&options, &e),
            }
        }
        match page.next_start {
            Some(next) => start = next,
            None => break,
        }
    }
    app.context.close_store().await;
    if let Err(e) = writer.flush() {
        return end_of_export(&options, &e);
    }
    report(out, options.output.as_deref(), exported, pending);
    Ok(())
}

fn create(path: &Path) -> Result<File, CommandError> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    opened.map_err(|e| {
        CommandError::Usage(format!("--output: failed to create {}: {e}", path.display()))
    })
}

/// Returns the result of an export that cannot be written.
fn end_of_export(options: &ExportOptions, error: &io::Error) -> CommandResult {
    match &options.output {
        None => end_of_output(error),
        Some(path) => Err(CommandError::Runtime(format!(
            "failed to write {}, which is incomplete: {error}",
            path.display()
        ))),
    }
}

/// Prints what was exported: with a file to standard output, otherwise only what is missing, to standard error.
#[expect(clippy::print_stderr, reason = "standard output has the export")]
fn report(out: CommandOutput, path: Option<&Path>, exported: usize, pending: usize) {
    let left_out = match pending {
        0 => String::new(),
        number => format!(
            "left out {} imported by a migration and not used yet",
            counted(number, "key", "keys")
        ),
    };
    match path {
        Some(path) => {
            let keys = counted(exported, "key", "keys");
            let separator = if pending == 0 { "" } else { "; " };
            let text = format!("exported {keys} to {}{separator}{left_out}", path.display());
            out.write(&text, &json!({ "exported": exported, "leftOut": pending }));
        }
        None if pending > 0 => eprintln!("keyward: {left_out}"),
        None => {}
    }
}

/// Returns a key as `keyward import` reads it. `None`: it has no hash of the whole key yet.
fn to_line(found: &FoundKey) -> Option<String> {
    let stored = &found.stored;
    let key = &stored.key;
    KeyHash::from_base64(&key.hash)?;
    let permissions: Vec<_> = stored.permissions.iter().map(|it| it.slug.as_str()).collect();
    let limits = stored.ratelimits.iter().map(|limit| {
        json!({
            "name": limit.name, "limit": limit.limit, "duration": limit.duration_ms,
            "autoApply": limit.auto_apply, "async": limit.is_approximate,
        })
    });
    // Version 1 allows an empty name.
    let name = key.name.as_deref().filter(|name| !name.is_empty());
    let mut line = json!({
        "hash": key.hash, "name": name, "externalId": key.owner_id, "meta": key.meta,
        "environment": key.environment, "expires": key.expires_at,
        "roles": found.resolved.roles(), "permissions": permissions,
        "ratelimits": limits.collect::<Vec<_>>(), "enabled": key.is_enabled,
    });
    if let Some((remaining, refill)) = found.credits {
        line["credits"] = json!({ "remaining": remaining });
        if let Some(refill) = refill {
            line["credits"]["refill"] = refill_json(&refill);
        }
    }
    // The request has no null and no empty lists.
    let is_set =
        |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    if let Value::Object(fields) = &mut line {
        fields.retain(|_, value| is_set(value));
    }
    Some(line.to_string())
}

fn refill_json(refill: &Refill) -> Value {
    match refill.interval {
        RefillInterval::Daily => json!({ "interval": "daily", "amount": refill.amount }),
        RefillInterval::Monthly { day } => {
            json!({ "interval": "monthly", "amount": refill.amount, "refillDay": day })
        }
    }
}
