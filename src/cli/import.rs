//! `keyward import`: creates keys from the hashes of keys that were issued elsewhere. Each request is one transaction with one
//! entry in the audit log, so the keys of a file are grouped only if they are more than a request may have. The file is read
//! twice, and one group is in memory at a time.

use api::import_keys::ImportKeys;
use api::{Operation as _, in_process};
use clap::Args;
use domain::bounds::{IMPORTED_KEYS_MAX, KEY_CHARS_MAX};
use domain::migrations;
use foundation::config::Settings;
use foundation::model::Algorithm;
use foundation::secret::{KeyHash, split_prefixed_key};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::import_faults::format_faults;
use super::input::{RawFields, to_raw};
use super::key_file::{KeyFile, file_error};
use super::operator::{Operator, to_body};
use super::output::{CommandOutput, counted};
use super::{CommandError, CommandResult};

/// The maximum size of the keys in one request, unless a single key is larger.
const BATCH_BYTES_MAX: usize = 1_000 * 1024;

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

/// A request of `keys.importKeys`. The keys are sent as they are in the file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ImportRequest<'a> {
    migration_id: &'a str,
    api_id: &'a str,
    keys: Vec<Box<RawValue>>,
}

/// The result of an import.
#[derive(Default)]
struct ImportResult {
    imported: usize,
    skipped: usize,
    /// The hashes of keys that were left out. Only JSON lists them.
    failed: Vec<Value>,
}

pub async fn run(settings: Settings, out: CommandOutput, options: ImportOptions) -> CommandResult {
    let ImportOptions { file, api_id, migration, algorithm, dry_run, workspace } = options;
    let file = KeyFile::open(&file)?;
    // Full keys are hashed as the migration hashes its keys.
    let (opened, algorithm) = match &migration {
        Some(id) => {
            let operator = Operator::open(settings.clone(), &workspace).await?;
            let (context, caller) = (&operator.app.context, &operator.caller);
            let (found, _) = migrations::get(context, caller, &id.as_str().into(), 0).await?;
            (Some(operator), found.migration.algorithm)
        }
        None => (None, algorithm),
    };
    // Everything is checked before anything is imported.
    let count = check_keys(&file, algorithm, &api_id)?;
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
    let result = import_keys(&operator, out, &file, algorithm, &migration, &api_id).await?;
    operator.close().await;
    let skipped = match result.skipped {
        0 => String::new(),
        number => format!("; left out {}", counted(number, "duplicate", "duplicates")),
    };
    let imported = counted(result.imported, "key", "keys");
    let text = format!("imported {imported} as {migration}{skipped}");
    let reply = json!({
        "migrationId": migration, "imported": result.imported, "failed": result.failed,
    });
    out.write(&text, &reply);
    Ok(())
}

/// Checks all keys of a file and returns their number.
fn check_keys(file: &KeyFile, algorithm: Algorithm, api_id: &str) -> Result<usize, CommandError> {
    let mut count = 0;
    for batch in KeyBatches::new(hash_keys(file.keys()?, algorithm)) {
        let (keys, first) = (batch?, count + 1);
        count += keys.len();
        // The ID stands for that of the migration.
        let request = ImportRequest { migration_id: "mig_new", api_id, keys };
        in_process::validate_request(ImportKeys::NAME, &to_body(&request)?).map_err(|e| {
            let faults = format_faults(&e, first);
            file_error(&format!("among the keys {first} to {count}: {faults}"))
        })?;
    }
    match count {
        0 => Err(file_error("contains no keys")),
        count => Ok(count),
    }
}

async fn import_keys(
    operator: &Operator,
    out: CommandOutput,
    file: &KeyFile,
    algorithm: Algorithm,
    migration: &str,
    api_id: &str,
) -> Result<ImportResult, CommandError> {
    let mut result = ImportResult::default();
    for batch in KeyBatches::new(hash_keys(file.keys()?, algorithm)) {
        let reply = match batch {
            Ok(keys) => {
                let request = ImportRequest { migration_id: migration, api_id, keys };
                operator.call::<ImportKeys>(&request).await
            }
            Err(e) => Err(e),
        };
        let mut reply = match reply {
            Err(failure) if result.imported > 0 => {
                let imported = counted(result.imported, "key", "keys");
                return Err(failure.with_context(&format!(
                    "stopped after {imported}; import the file again with --migration {migration}, which leaves out what is there"
                )));
            }
            reply => reply?,
        };
        result.imported += reply["migrated"].as_array().map_or(0, Vec::len);
        if let Value::Array(hashes) = reply["failed"].take() {
            result.skipped += hashes.len();
            if out.json {
                result.failed.extend(hashes);
            }
        }
    }
    Ok(result)
}

/// Replaces full keys by their hashes.
fn hash_keys(
    keys: impl Iterator<Item = Result<Box<RawValue>, CommandError>>,
    algorithm: Algorithm,
) -> impl Iterator<Item = Result<Box<RawValue>, CommandError>> {
    keys.zip(1_usize..).map(move |(key, number)| {
        let key = key?;
        let Ok(mut fields) = serde_json::from_str::<RawFields>(key.get()) else {
            return Err(file_error(&format!("key {number} must be a JSON object")));
        };
        hash_key(&mut fields, algorithm).map_err(|e| file_error(&format!("key {number}: {e}")))?;
        to_raw_value(&fields).map_err(|e| file_error(&format!("key {number}: {e}")))
    })
}

/// Returns the text of a field. `None`: it is absent or no text.
fn text_of(value: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(value?.get()).ok()
}

/// Checks a hash, or replaces a full key by its hash: that of the long token if the algorithm is `prefixed-api-key`.
fn hash_key(fields: &mut RawFields, algorithm: Algorithm) -> Result<(), String> {
    let Some(key) = fields.remove("key") else {
        let hash = text_of(fields.get("hash").map(Box::as_ref)).unwrap_or_default();
        let is_hash = KeyHash::from_hex(&hash).or_else(|| KeyHash::from_base64(&hash)).is_some();
        return match is_hash {
            true => Ok(()),
            false => Err("`hash` must be a SHA-256 in base64 or hexadecimal".to_owned()),
        };
    };
    if fields.contains_key("hash") {
        return Err("must have either `key` or `hash`".to_owned());
    }
    let key = text_of(Some(&key)).filter(|key| !key.is_empty()).ok_or("`key` must be a text")?;
    if key.chars().count() > KEY_CHARS_MAX {
        return Err(format!(
            "`key` must have at most {KEY_CHARS_MAX} characters: version 2 cannot verify a longer one"
        ));
    }
    let hashed = match algorithm {
        Algorithm::Sha256 => key.as_str(),
        Algorithm::PrefixedApiKey => {
            let (_, _, long) = split_prefixed_key(&key)
                .ok_or("`key` must have a prefix, a short and a long token, with _ between them")?;
            long
        }
    };
    fields.insert("hash".to_owned(), to_raw(&json!(KeyHash::compute(hashed).to_base64())));
    Ok(())
}

/// Groups keys into requests within the bounds of one.
struct KeyBatches<I> {
    keys: I,
    /// The first key of the next request.
    next_key: Option<Box<RawValue>>,
}

impl<I: Iterator<Item = Result<Box<RawValue>, CommandError>>> KeyBatches<I> {
    fn new(keys: I) -> Self {
        Self { keys, next_key: None }
    }

    fn read_key(&mut self) -> Result<Option<Box<RawValue>>, CommandError> {
        match self.next_key.take() {
            Some(key) => Ok(Some(key)),
            None => self.keys.next().transpose(),
        }
    }

    fn next_batch(&mut self) -> Result<Vec<Box<RawValue>>, CommandError> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < IMPORTED_KEYS_MAX {
            let Some(key) = self.read_key()? else { break };
            let size = key.get().len();
            if !batch.is_empty() && bytes + size > BATCH_BYTES_MAX {
                self.next_key = Some(key);
                break;
            }
            bytes += size;
            batch.push(key);
        }
        Ok(batch)
    }
}

impl<I: Iterator<Item = Result<Box<RawValue>, CommandError>>> Iterator for KeyBatches<I> {
    type Item = Result<Vec<Box<RawValue>>, CommandError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_batch();
        let is_end = matches!(&batch, Ok(keys) if keys.is_empty());
        (!is_end).then_some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the keys of a file with their hashes, or none if they cannot be read.
    fn keys_of(text: &str) -> Vec<Box<RawValue>> {
        let Ok(file) = KeyFile::from_bytes(text.into()) else { return Vec::new() };
        let Ok(keys) = file.keys() else { return Vec::new() };
        hash_keys(keys, Algorithm::Sha256).collect::<Result<_, _>>().unwrap_or_default()
    }

    fn count_keys(text: &str) -> Option<usize> {
        let file = KeyFile::from_bytes(text.into()).ok()?;
        check_keys(&file, Algorithm::Sha256, "api_1").ok()
    }

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
            assert_eq!(json!(keys_of(text)), expected, "{text}");
            assert_eq!(count_keys(text), Some(2), "{text}");
        }
        let both = [r#"{"key": "a", "hash": "b"}"#, "key,hash\na,b"];
        let invalid =
            ["", "[]", "[1]", "{", r#"{"key": ""}"#, "1", "key,name\n", "name\na", "id\n1"];
        let invalid = [&invalid[..], &[r#"{"hash": "sk_live_1"}"#, "{}"]].concat();
        for text in both.iter().chain(&invalid) {
            assert_eq!(count_keys(text), None, "{text}");
        }
    }

    #[test]
    fn full_key_has_at_most_the_length_of_a_verified_one() {
        let is_accepted = |chars: usize| {
            let key = format!("a_b_{}", "é".repeat(chars - 4));
            [Algorithm::Sha256, Algorithm::PrefixedApiKey].map(|algorithm| {
                let keys = [Ok(to_raw(&json!({ "key": key })))].into_iter();
                hash_keys(keys, algorithm).all(|key| key.is_ok())
            })
        };

        assert_eq!(is_accepted(512), [true, true]);
        assert_eq!(is_accepted(513), [false, false]);
    }

    #[test]
    fn prefixed_key_is_hashed_without_its_prefix() {
        let hash = |key: &str| {
            let keys = [Ok(to_raw(&json!({ "key": key })))].into_iter();
            hash_keys(keys, Algorithm::PrefixedApiKey).collect::<Result<Vec<_>, _>>()
        };

        let expected = json!([{ "hash": KeyHash::compute("long").to_base64() }]);
        assert_eq!(json!(hash("acme_prod_short_long").unwrap_or_default()), expected);
        for other in ["long", "acme_long"] {
            assert!(hash(other).is_err(), "{other}");
        }
    }

    #[test]
    fn keys_of_later_requests_have_their_numbers_in_errors() {
        let line = format!("{{\"hash\": \"{}\"}}\n", "ab".repeat(32));
        let lines = line.repeat(IMPORTED_KEYS_MAX);
        let text = format!("{lines}{{\"key\": \"a\", \"name\": \"\"}}");
        assert_eq!(count_keys(&lines), Some(IMPORTED_KEYS_MAX));

        let checked = KeyFile::from_bytes(text.into())
            .and_then(|file| check_keys(&file, Algorithm::Sha256, "api_1"));

        let Err(CommandError::Usage(error)) = checked else { panic!("the last key is invalid") };
        assert!(error.contains("keys 10001 to 10001: "), "{error}");
        assert!(error.contains("key 10001: name"), "{error}");
    }

    #[test]
    fn batches_are_bounded_by_number_and_size() {
        let sizes = |keys: Vec<Value>| {
            let batches = KeyBatches::new(keys.iter().map(|key| Ok(to_raw(key))));
            batches.map(|batch| batch.map_or(0, |keys| keys.len())).collect::<Vec<_>>()
        };

        assert_eq!(sizes(vec![json!({}); IMPORTED_KEYS_MAX]), [IMPORTED_KEYS_MAX]);
        assert_eq!(sizes(vec![json!({}); IMPORTED_KEYS_MAX + 1]), [IMPORTED_KEYS_MAX, 1]);
        let half = json!("x".repeat(BATCH_BYTES_MAX / 2 - 2));
        assert_eq!(sizes(vec![half; 3]), [2, 1]);
    }
}
