//! `keyward import`: creates keys from the hashes of keys that were issued elsewhere.

use api::v2::keys::migrate_keys::MigrateKeys;
use api::{Operation as _, in_process};
use clap::Args;
use domain::migrations;
use foundation::config::Settings;
use foundation::model::Algorithm;
use foundation::secret::KeyHash;
use serde_json::{Map, Value, json};

use super::input::{FILE_MAX_BYTES, read_text};
use super::operator::Operator;
use super::output::{CommandOutput, counted};
use super::{CommandError, CommandResult};

/// The maximum number of keys in one request, and the size at which it gets no more.
const BATCH_KEYS_MAX: usize = 1_000;
const BATCH_BYTES_MAX: usize = 512 * 1024;
/// The name of the argument in errors.
const FILE: &str = "FILE";

#[derive(Args)]
pub struct ImportOptions {
    /// File with the keys, or - for standard input: a JSON list or one JSON object per line, with the fields of
    /// `keys.migrateKeys`; `key` instead of `hash` is a full key, of which only the hash is stored
    file: String,
    /// Create the keys in this API
    #[arg(long = "api", value_name = "ID")]
    api_id: String,
    /// Add the keys to this migration [default: a new one]
    #[arg(long, value_name = "ID")]
    migration: Option<String>,
    /// Set the hash algorithm of the new migration
    #[arg(
        long,
        value_name = "sha256|prefixed-api-key",
        default_value = "sha256",
        conflicts_with = "migration"
    )]
    algorithm: Algorithm,
    /// Check the file and import nothing
    #[arg(long)]
    dry_run: bool,
    #[arg(long, default_value = "ws_default")]
    workspace: String,
}

pub async fn run(settings: Settings, out: CommandOutput, options: ImportOptions) -> CommandResult {
    let ImportOptions { file, api_id, migration, algorithm, dry_run, workspace } = options;
    let keys = parse_keys(&read_text(FILE, &file, FILE_MAX_BYTES)?)?;
    let count = keys.len();
    let batches = split(keys);
    // Everything is checked before anything is imported. The ID stands for that of the migration.
    let mut first = 1;
    for batch in &batches {
        let request = to_request("mig_new", &api_id, batch);
        in_process::validate_request(MigrateKeys::NAME, &request).map_err(|e| {
            let last = first + batch.len() - 1;
            CommandError::Usage(format!("{FILE}: among the keys {first} to {last}: {e}"))
        })?;
        first += batch.len();
    }
    if dry_run {
        let text = format!("{} can be imported", counted(count, "key", "keys"));
        out.write(&text, &json!({ "keys": count, "dryRun": true }));
        return Ok(());
    }
    let operator = Operator::open(settings, &workspace).await?;
    domain::apis::get(&operator.app.context, &operator.caller, &api_id.as_str().into()).await?;
    let migration = match migration {
        Some(id) => id,
        None => {
            let name = Some(format!("import of {}", counted(count, "key", "keys")));
            let context = &operator.app.context;
            migrations::create(context, &operator.caller, algorithm, name).await?.id.to_string()
        }
    };
    let (mut imported, mut failed) = (0, Vec::new());
    for batch in &batches {
        let request = to_request(&migration, &api_id, batch);
        let mut reply = match operator.call::<MigrateKeys>(&request).await {
            Err(failure) if imported > 0 => {
                let imported = counted(imported, "key", "keys");
                return Err(failure.with_context(&format!(
                    "stopped after {imported}; import the file again with --migration {migration}, which leaves out what is there"
                )));
            }
            reply => reply?,
        };
        imported += reply["migrated"].as_array().map_or(0, Vec::len);
        if let Value::Array(hashes) = reply["failed"].take() {
            failed.extend(hashes);
        }
    }
    operator.close().await;
    let skipped = match failed.len() {
        0 => String::new(),
        number => format!("; left out {}", counted(number, "duplicate", "duplicates")),
    };
    let text = format!("imported {} as {migration}{skipped}", counted(imported, "key", "keys"));
    let reply = json!({ "migrationId": migration, "imported": imported, "failed": failed });
    out.write(&text, &reply);
    Ok(())
}

fn to_request(migration: &str, api_id: &str, keys: &[Value]) -> Value {
    json!({ "migrationId": migration, "apiId": api_id, "keys": keys })
}

/// Parses a JSON list, or one JSON object per line, and replaces full keys by their hashes.
fn parse_keys(text: &str) -> Result<Vec<Value>, CommandError> {
    let fault = |what: String| CommandError::Usage(format!("{FILE}: {what}"));
    let keys: Vec<Value> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(|e| fault(format!("is not a JSON list: {e}")))?
    } else {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let parse = |(at, line): (usize, &str)| {
            serde_json::from_str(line)
                .map_err(|e| fault(format!("line {}: is not JSON: {e}", at + 1)))
        };
        lines.map(parse).collect::<Result<_, _>>()?
    };
    if keys.is_empty() {
        return Err(fault("contains no keys".to_owned()));
    }
    let hashed = |(at, key): (usize, Value)| match key {
        Value::Object(fields) => {
            hash_key(fields).map_err(|e| fault(format!("key {}: {e}", at + 1)))
        }
        _ => Err(fault(format!("key {} must be a JSON object", at + 1))),
    };
    keys.into_iter().enumerate().map(hashed).collect()
}

/// Replaces a full key by its hash.
fn hash_key(mut fields: Map<String, Value>) -> Result<Value, &'static str> {
    let Some(key) = fields.remove("key") else { return Ok(Value::Object(fields)) };
    if fields.contains_key("hash") {
        return Err("must have either `key` or `hash`");
    }
    let key = key.as_str().filter(|key| !key.is_empty()).ok_or("`key` must be a text")?;
    fields.insert("hash".to_owned(), json!(KeyHash::compute(key).to_base64()));
    Ok(Value::Object(fields))
}

/// Splits keys into requests within the bounds of one.
fn split(keys: Vec<Value>) -> Vec<Vec<Value>> {
    let mut batches: Vec<Vec<Value>> = Vec::new();
    let mut bytes = 0;
    for key in keys {
        let size = key.to_string().len();
        let has_room =
            |batch: &Vec<Value>| batch.len() < BATCH_KEYS_MAX && bytes + size <= BATCH_BYTES_MAX;
        match batches.last_mut().filter(|batch| has_room(batch)) {
            Some(batch) => {
                bytes += size;
                batch.push(key);
            }
            None => {
                bytes = size;
                batches.push(vec![key]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_a_list_and_from_lines() {
        let hash = KeyHash::compute("secret").to_base64();
        let expected = json!([{ "hash": hash, "name": "a" }, { "hash": "h" }]);
        for text in [
            r#"[{"key": "secret", "name": "a"}, {"hash": "h"}]"#,
            "{\"key\": \"secret\", \"name\": \"a\"}\n\n{\"hash\": \"h\"}\n",
        ] {
            let keys = parse_keys(text).unwrap_or_default();
            assert_eq!(json!(keys), expected, "{text}");
        }
        for text in ["", "[]", "[1]", "{", r#"{"key": "a", "hash": "b"}"#, r#"{"key": ""}"#] {
            assert!(parse_keys(text).is_err(), "{text}");
        }
    }

    #[test]
    fn batches_are_bounded_by_number_and_size() {
        let sizes = |keys: Vec<Value>| split(keys).iter().map(Vec::len).collect::<Vec<_>>();

        assert_eq!(sizes(vec![json!({}); BATCH_KEYS_MAX]), [BATCH_KEYS_MAX]);
        assert_eq!(sizes(vec![json!({}); BATCH_KEYS_MAX + 1]), [BATCH_KEYS_MAX, 1]);
        let half = json!("x".repeat(BATCH_BYTES_MAX / 2 - 2));
        assert_eq!(sizes(vec![half; 3]), [2, 1]);
    }
}
