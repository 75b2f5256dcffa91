//! `keyward import`: creates keys from the hashes of keys that were issued elsewhere. Each request is one transaction with one
//! entry in the audit log, so a file is split only if it is larger than the request may be.

use api::import_keys::ImportKeys;
use api::{Operation as _, in_process};
use clap::Args;
use domain::bounds::IMPORTED_KEYS_MAX;
use domain::migrations;
use foundation::config::Settings;
use foundation::model::Algorithm;
use foundation::secret::{KeyHash, split_prefixed_key};
use serde_json::{Map, Value, json};

use super::input::{FILE_MAX_BYTES, read_text};
use super::operator::Operator;
use super::output::{CommandOutput, counted};
use super::{CommandError, CommandResult};

/// The maximum size of the keys in one request, unless a single key is larger.
const BATCH_BYTES_MAX: usize = 1_000 * 1024;
/// The name of the argument in errors.
const FILE: &str = "FILE";

#[derive(Args)]
pub struct ImportOptions {
    /// File with the keys, or - for standard input: CSV with headings, a JSON list or one JSON object per line, with the
    /// fields of `keys.migrateKeys`; `key` instead of `hash` is a full key, of which only the hash is stored
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
    // A full key is hashed as the migration hashes its keys.
    let has_full_keys = keys.iter().any(|key| key.get("key").is_some());
    let (opened, algorithm) = match migration.as_ref().filter(|_| has_full_keys) {
        Some(id) => {
            let operator = Operator::open(settings.clone(), &workspace).await?;
            let (context, caller) = (&operator.app.context, &operator.caller);
            let (found, _) = migrations::get(context, caller, &id.as_str().into(), 0).await?;
            (Some(operator), found.migration.algorithm)
        }
        None => (None, algorithm),
    };
    let keys = hash_keys(keys, algorithm)?;
    let count = keys.len();
    let batches = split(keys);
    // Everything is checked before anything is imported.
    check_batches(&batches, &api_id)?;
    if dry_run {
        let text = format!("{} can be imported", counted(count, "key", "keys"));
        out.write(&text, &json!({ "keys": count, "dryRun": true }));
        if let Some(operator) = opened {
            operator.close().await;
        }
        return Ok(());
    }
    let operator = match opened {
        Some(operator) => operator,
        None => Operator::open(settings, &workspace).await?,
    };
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
        let mut reply = match operator.call::<ImportKeys>(&request).await {
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

fn check_batches(batches: &[Vec<Value>], api_id: &str) -> CommandResult {
    let mut first = 1;
    for batch in batches {
        // The ID stands for that of the migration.
        let request = to_request("mig_new", api_id, batch);
        in_process::validate_request(ImportKeys::NAME, &request).map_err(|e| {
            let last = first + batch.len() - 1;
            let faults = number_keys(&e.to_string(), first);
            fault(&format!("among the keys {first} to {last}: {faults}"))
        })?;
        first += batch.len();
    }
    Ok(())
}

/// Names the keys in an error by their numbers in the file: `keys[0].name` becomes `key 1: name`. `first` is the number of the
/// first one.
fn number_keys(message: &str, first: usize) -> String {
    let mut parts = message.split("keys[");
    let mut numbered = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let index = part.split_once(']');
        match index.and_then(|(at, rest)| Some((at.parse::<usize>().ok()?, rest))) {
            Some((at, rest)) => {
                let number = first.saturating_add(at).to_string();
                let (separator, rest) =
                    rest.strip_prefix('.').map_or(("", rest), |field| (": ", field));
                numbered.extend(["key ", number.as_str(), separator, rest]);
            }
            None => numbered.extend(["keys[", part]),
        }
    }
    numbered
}

fn to_request(migration: &str, api_id: &str, keys: &[Value]) -> Value {
    json!({ "migrationId": migration, "apiId": api_id, "keys": keys })
}

fn fault(what: &str) -> CommandError {
    CommandError::Usage(format!("{FILE}: {what}"))
}

/// Parses a JSON list, one JSON object per line or CSV.
fn parse_keys(text: &str) -> Result<Vec<Value>, CommandError> {
    // The mark with which some programs begin files.
    let text = text.trim_start_matches('\u{feff}');
    let keys: Vec<Value> = match text.trim_start().chars().next() {
        Some('[') => {
            serde_json::from_str(text).map_err(|e| fault(&format!("is not a JSON list: {e}")))?
        }
        None | Some('{') => {
            let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
            let parse = |(at, line): (usize, &str)| {
                serde_json::from_str(line)
                    .map_err(|e| fault(&format!("line {}: is not JSON: {e}", at + 1)))
            };
            lines.map(parse).collect::<Result<_, _>>()?
        }
        Some(_) => {
            let keys = dashboard::parse_csv_keys(text).map_err(|e| fault(&e))?;
            keys.into_iter().map(Value::Object).collect()
        }
    };
    if keys.is_empty() {
        return Err(fault("contains no keys"));
    }
    Ok(keys)
}

/// Replaces full keys by their hashes.
fn hash_keys(keys: Vec<Value>, algorithm: Algorithm) -> Result<Vec<Value>, CommandError> {
    let hashed = |(at, key): (usize, Value)| match key {
        Value::Object(fields) => {
            hash_key(fields, algorithm).map_err(|e| fault(&format!("key {}: {e}", at + 1)))
        }
        _ => Err(fault(&format!("key {} must be a JSON object", at + 1))),
    };
    keys.into_iter().enumerate().map(hashed).collect()
}

/// Checks a hash, or replaces a full key by its hash: that of the long token if the algorithm is `prefixed-api-key`.
fn hash_key(mut fields: Map<String, Value>, algorithm: Algorithm) -> Result<Value, &'static str> {
    let Some(key) = fields.remove("key") else {
        let hash = fields.get("hash").and_then(Value::as_str).unwrap_or_default();
        let is_hash = KeyHash::from_hex(hash).or_else(|| KeyHash::from_base64(hash)).is_some();
        return match is_hash {
            true => Ok(Value::Object(fields)),
            false => Err("`hash` must be a SHA-256 in base64 or hexadecimal"),
        };
    };
    if fields.contains_key("hash") {
        return Err("must have either `key` or `hash`");
    }
    let key = key.as_str().filter(|key| !key.is_empty()).ok_or("`key` must be a text")?;
    let hashed = match algorithm {
        Algorithm::Sha256 => key,
        Algorithm::PrefixedApiKey => {
            let (_, _, long) = split_prefixed_key(key)
                .ok_or("`key` must have a prefix, a short and a long token, with _ between them")?;
            long
        }
    };
    fields.insert("hash".to_owned(), json!(KeyHash::compute(hashed).to_base64()));
    Ok(Value::Object(fields))
}

/// Splits keys into requests within the bounds of one.
fn split(keys: Vec<Value>) -> Vec<Vec<Value>> {
    let mut batches: Vec<Vec<Value>> = Vec::new();
    let mut bytes = 0;
    for key in keys {
        let size = key.to_string().len();
        let has_room =
            |batch: &Vec<Value>| batch.len() < IMPORTED_KEYS_MAX && bytes + size <= BATCH_BYTES_MAX;
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
    fn keys_are_read_from_a_list_from_lines_and_from_csv() {
        let hash = KeyHash::compute("secret").to_base64();
        let other = "ab".repeat(32);
        let expected = json!([{ "hash": hash, "name": "a" }, { "hash": other }]);
        for text in [
            r#"[{"key": "secret", "name": "a"}, {"hash": "h"}]"#,
            "{\"key\": \"secret\", \"name\": \"a\"}\n\n{\"hash\": \"h\"}\n",
            "\u{feff}key,name,hash\nsecret,a,\n,,\"h\"\n",
        ] {
            let text = &text.replace("\"h\"", &format!("\"{other}\""));
            let keys = parse_keys(text).and_then(|keys| hash_keys(keys, Algorithm::Sha256));
            let keys = keys.unwrap_or_default();
            assert_eq!(json!(keys), expected, "{text}");
        }
        let both = [r#"{"key": "a", "hash": "b"}"#, "key,hash\na,b"];
        let invalid =
            ["", "[]", "[1]", "{", r#"{"key": ""}"#, "1", "key,name\n", "name\na", "id\n1"];
        let invalid = [&invalid[..], &[r#"{"hash": "sk_live_1"}"#, "{}"]].concat();
        for text in both.iter().chain(&invalid) {
            let keys = parse_keys(text).and_then(|keys| hash_keys(keys, Algorithm::Sha256));
            assert!(keys.is_err(), "{text}");
        }
    }

    #[test]
    fn prefixed_key_is_hashed_without_its_prefix() {
        let hash = |key: &str| hash_keys(vec![json!({ "key": key })], Algorithm::PrefixedApiKey);

        let expected = json!([{ "hash": KeyHash::compute("long").to_base64() }]);
        assert_eq!(json!(hash("acme_prod_short_long").unwrap_or_default()), expected);
        for other in ["long", "acme_long"] {
            assert!(hash(other).is_err(), "{other}");
        }
    }

    #[test]
    fn keys_in_errors_have_their_numbers_in_the_file() {
        let message = "a of keys[0] is missing; keys[12].roles[1] is short; keys[x] keys[3";

        let numbered = "a of key 5 is missing; key 17: roles[1] is short; keys[x] keys[3";
        assert_eq!(number_keys(message, 5), numbered);
    }

    #[test]
    fn batches_are_bounded_by_number_and_size() {
        let sizes = |keys: Vec<Value>| split(keys).iter().map(Vec::len).collect::<Vec<_>>();

        assert_eq!(sizes(vec![json!({}); IMPORTED_KEYS_MAX]), [IMPORTED_KEYS_MAX]);
        assert_eq!(sizes(vec![json!({}); IMPORTED_KEYS_MAX + 1]), [IMPORTED_KEYS_MAX, 1]);
        let half = json!("x".repeat(BATCH_BYTES_MAX / 2 - 2));
        assert_eq!(sizes(vec![half; 3]), [2, 1]);
    }
}
