//! Keys as people paste them: JSON as `keys.migrateKeys` takes it, or CSV with a header.
//!
//! What is pasted here is read by people who may take a key for its hash. A key that was kept as its own hash would lie in
//! the database for all to read, and never verify, so only what can be a hash goes on. No fault repeats what was pasted.

use foundation::secret::KeyHash;
use serde_json::{Map, Value, json};

/// As much as a request of the operation may have.
pub const PASTED_BYTES_MAX: usize = 1024 * 1024;
/// As many as the operation takes.
const KEYS_MAX: usize = 10_000;

const COLUMNS: &str =
    "hash (or id), name, externalId, roles, permissions, expires, enabled, credits, meta";

/// The keys of a text, each as the operation reads it. The error is what is wrong with the text.
pub fn keys(text: &str, migration: &str, api: &str) -> Result<Vec<Value>, String> {
    if text.len() > PASTED_BYTES_MAX {
        let bytes = text.len();
        return Err(format!("keys has {bytes} bytes: {PASTED_BYTES_MAX} at most go at once"));
    }
    let text = text.trim_start_matches('\u{feff}').trim();
    let keys = match text.chars().next() {
        None => return Err("keys is empty: paste one key at least".into()),
        Some('[' | '{') => of_json(text, migration, api)?,
        Some(_) => of_csv(text)?,
    };
    match keys.len() {
        0 => Err("keys has none: paste one key at least".into()),
        many if many > KEYS_MAX => {
            Err(format!("keys has {many}: {KEYS_MAX} at most go at once; paste the rest later"))
        }
        _ => keys.iter().enumerate().try_for_each(check_hash).map(|()| keys),
    }
}

/// Of a hash that is missing or no text the operation tells.
fn check_hash((at, key): (usize, &Value)) -> Result<(), String> {
    let hash = key.get("hash").and_then(Value::as_str);
    let is_one = |hash| KeyHash::from_hex(hash).or_else(|| KeyHash::from_base64(hash)).is_some();
    match hash.is_none_or(is_one) {
        true => Ok(()),
        false => Err(format!(
            "keys[{at}].hash must be SHA-256, as 64 digits of hex or 44 characters of base64; nothing was taken in"
        )),
    }
}

fn of_json(text: &str, migration: &str, api: &str) -> Result<Vec<Value>, String> {
    let fault = |e: serde_json::Error| {
        format!("keys is no JSON at line {}, column {}", e.line(), e.column())
    };
    let (keys, others) = match serde_json::from_str(text).map_err(fault)? {
        Value::Object(mut whole) => (whole.remove("keys"), whole),
        list => (Some(list), Map::new()),
    };
    for (name, value) in others {
        let wanted = match name.as_str() {
            "migrationId" => migration,
            "apiId" => api,
            _ => return Err("keys has a field beside keys, migrationId and apiId".into()),
        };
        if value != wanted {
            return Err(format!("keys has another {name} than this page"));
        }
    }
    match keys {
        Some(Value::Array(keys)) => Ok(keys),
        Some(_) | None => Err("keys must be a list of keys, or an object with such keys".into()),
    }
}

fn of_csv(text: &str) -> Result<Vec<Value>, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| unreadable(&e))?.clone();
    let columns: Vec<_> = header.iter().map(column).collect::<Option<_>>().ok_or_else(|| {
        format!("the first line of keys must name its columns, which can be {COLUMNS}")
    })?;
    let doubled = |(at, column): (usize, &&str)| columns[..at].contains(column);
    if columns.iter().enumerate().any(doubled) {
        return Err("the first line of keys names a column twice".into());
    }
    if !columns.contains(&"hash") {
        return Err("the first line of keys names no column hash".into());
    }
    let row = |row: csv::Result<csv::StringRecord>| {
        let row = row.map_err(|e| unreadable(&e))?;
        let cells = columns.iter().zip(row.iter()).filter(|(_, text)| !text.is_empty());
        let key: Map<_, _> =
            cells.map(|(column, text)| ((*column).to_owned(), cell(column, text))).collect();
        Ok(Value::Object(key))
    };
    reader.records().map(row).collect()
}

/// How the operation calls a column.
fn column(name: &str) -> Option<&'static str> {
    Some(match name {
        "hash" | "id" => "hash",
        "name" => "name",
        "externalId" => "externalId",
        "roles" => "roles",
        "permissions" => "permissions",
        "expires" => "expires",
        "enabled" => "enabled",
        "credits" => "credits",
        "meta" => "meta",
        _ => return None,
    })
}

/// What a cell says. What is no number or no JSON stays a text, of which the operation says what it must be.
fn cell(column: &str, text: &str) -> Value {
    let read = || serde_json::from_str(text).unwrap_or_else(|_| text.into());
    match column {
        "roles" | "permissions" => {
            text.split(';').map(str::trim).filter(|part| !part.is_empty()).collect()
        }
        "expires" | "enabled" | "meta" => read(),
        "credits" => json!({ "remaining": read() }),
        _ => text.into(),
    }
}

fn unreadable(error: &csv::Error) -> String {
    let line = error.position().map_or(1, csv::Position::line);
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("line {line} of keys has {len} values: the first line names {expected_len}")
        }
        _ => format!("line {line} of keys is no CSV"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Value>, String> {
        keys(text, "migration", "api")
    }

    fn hash() -> String {
        KeyHash::of("abc").base64()
    }

    #[test]
    fn csv_is_read_by_its_header() {
        let text = format!(
            "\u{feff}id,name,externalId,roles,permissions,expires,enabled,credits,meta\r\n\
            {},\"Smith, J.\",user_1,reader; writer,a.b,1,false,7,\"{{\"\"plan\"\":\"\"pro\"\"}}\"\r\n\
            {},,,,,,,,\r\n",
            hash(),
            KeyHash::of("abd").hex()
        );

        let wanted = json!([
            {
                "hash": hash(), "name": "Smith, J.", "externalId": "user_1",
                "roles": ["reader", "writer"], "permissions": ["a.b"], "expires": 1,
                "enabled": false, "credits": { "remaining": 7 }, "meta": { "plan": "pro" }
            },
            { "hash": KeyHash::of("abd").hex() }
        ]);
        assert_eq!(read(&text).map(Value::from), Ok(wanted));
    }

    #[test]
    fn json_is_read_as_a_list_or_as_a_request_for_this_page() {
        let list = json!([{ "hash": hash(), "meta": { "a": [1] } }]);
        let wanted = list.as_array().cloned();
        let with = |field: &str, value: &str| json!({ "keys": list, field: value }).to_string();

        for text in [
            list.to_string(),
            json!({ "keys": list }).to_string(),
            with("migrationId", "migration"),
            with("apiId", "api"),
        ] {
            assert_eq!(read(&text).ok(), wanted);
        }
        for (text, fault) in [
            (with("migrationId", "other"), "another migrationId"),
            (with("apiId", "other"), "another apiId"),
            (with("else", "x"), "a field beside"),
            ("{}".into(), "must be a list"),
            ("{\"keys\":1}".into(), "must be a list"),
            ("[]".into(), "has none"),
            ("[1\n2]".into(), "line 2, column 1"),
            (String::new(), "is empty"),
        ] {
            assert!(read(&text).is_err_and(|told| told.contains(fault)), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_a_hash_is_not_taken_in_and_not_repeated() {
        let secret = "prod_5kQmYw8vJt2hXb7nRz4cLp";
        for text in [format!("hash\n{secret}"), json!([{ "hash": secret }]).to_string()] {
            let told = read(&text).expect_err("a fault");
            assert!(told.starts_with("keys[0].hash must be SHA-256") && !told.contains(secret));
        }
    }

    #[test]
    fn csv_that_cannot_be_read_is_told_by_its_line() {
        let hash = hash();
        for (text, fault) in [
            (format!("hash,colour\n{hash},red"), "the first line of keys must name"),
            (format!("{hash}\n{hash}"), "the first line of keys must name"),
            (format!("hash,id\n{hash},{hash}"), "twice"),
            ("name\na".to_owned(), "no column hash"),
            (format!("hash,name\n{hash}"), "line 2 of keys has 1 values: the first line names 2"),
            ("hash".to_owned(), "has none"),
        ] {
            assert!(
                read(&text).is_err_and(|told| told.contains(fault)),
                "{text}: {:?}",
                read(&text)
            );
        }
    }

    #[test]
    fn ten_thousand_keys_and_a_mebibyte_go_at_once_and_no_more() {
        let rows = |many: usize| format!("hash\n{}", format!("{}\n", hash()).repeat(many));
        assert_eq!(read(&rows(10_000)).map(|keys| keys.len()), Ok(10_000));
        assert!(read(&rows(10_001)).is_err_and(|told| told.contains("10000 at most")));

        let long = |bytes: usize| format!("hash,name\n{},{}", hash(), "x".repeat(bytes - 55));
        assert_eq!(long(PASTED_BYTES_MAX).len(), PASTED_BYTES_MAX);
        assert!(read(&long(PASTED_BYTES_MAX)).is_ok());
        assert!(
            read(&long(PASTED_BYTES_MAX + 1)).is_err_and(|told| told.contains("1048576 at most"))
        );
    }
}
