//! Parses pasted keys: JSON in the format of `keys.migrateKeys`, or CSV with a header.
//!
//! A user may paste a key instead of its hash, so no error message repeats pasted text.

use domain::bounds::IMPORTED_KEYS_MAX;
use request::json_depth::{DEPTH_MAX, is_too_deep};
use serde_json::{Map, Value, json};

use super::super::format::format_size;

/// Limits the pasted text, in bytes.
pub const PASTED_BYTES_MAX: usize = 1024 * 1024;

const COLUMNS: &str =
    "hash (or id), name, externalId, roles, permissions, expires, enabled, credits, meta";

/// Parses keys into JSON, one value each, whose fields are not checked yet. The error is a message for the user.
pub fn parse_keys(text: &str, migration: &str, api: &str) -> Result<Vec<Value>, String> {
    if text.len() > PASTED_BYTES_MAX {
        let [bytes, max] = [text.len(), PASTED_BYTES_MAX].map(format_size);
        return Err(format!("keys has {bytes} bytes; the maximum is {max}"));
    }
    let text = text.trim_start_matches('\u{feff}').trim();
    let keys = match text.chars().next() {
        None => return Err("keys is empty; paste at least one hash".into()),
        Some('[' | '{') => parse_json(text, migration, api)?,
        Some(_) => parse_csv(text)?,
    };
    match keys.len() {
        0 => Err("keys contains no keys; paste at least one hash".into()),
        many if many > IMPORTED_KEYS_MAX => {
            let [many, max] = [many, IMPORTED_KEYS_MAX].map(format_size);
            Err(format!("keys has {many} entries; import at most {max} at a time"))
        }
        _ => Ok(keys),
    }
}

fn parse_json(text: &str, migration: &str, api: &str) -> Result<Vec<Value>, String> {
    if is_too_deep(text.as_bytes()) {
        return Err(format!("keys must not nest deeper than {DEPTH_MAX} levels"));
    }
    let fault = |e: serde_json::Error| {
        format!("keys is not valid JSON at line {}, column {}", e.line(), e.column())
    };
    let (keys, others) = match serde_json::from_str(text).map_err(fault)? {
        Value::Object(mut whole) => (whole.remove("keys"), whole),
        list => (Some(list), Map::new()),
    };
    for (name, value) in others {
        let wanted = match name.as_str() {
            "migrationId" => migration,
            "apiId" => api,
            _ => {
                return Err(
                    "keys has an unknown field; use only keys, migrationId and apiId".into()
                );
            }
        };
        if value != wanted {
            return Err(format!("keys has a different {name} than this page"));
        }
    }
    match keys {
        Some(Value::Array(keys)) => Ok(keys),
        Some(_) | None => {
            Err("keys must be a list of keys, or an object with the field keys".into())
        }
    }
}

fn parse_csv(text: &str) -> Result<Vec<Value>, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| csv_error(&e))?.clone();
    let columns: Vec<_> = header
        .iter()
        .map(column_field)
        .collect::<Option<_>>()
        .ok_or_else(|| format!("the first line of keys must name the columns: {COLUMNS}"))?;
    let is_duplicate = |(at, column): (usize, &&str)| columns[..at].contains(column);
    if columns.iter().enumerate().any(is_duplicate) {
        return Err("the first line of keys names a column twice".into());
    }
    if !columns.contains(&"hash") {
        return Err("the first line of keys has no column hash".into());
    }
    let row = |row: csv::Result<csv::StringRecord>| {
        let row = row.map_err(|e| csv_error(&e))?;
        let cells = columns.iter().zip(row.iter()).filter(|(_, text)| !text.is_empty());
        let key: Map<_, _> =
            cells.map(|(column, text)| ((*column).to_owned(), parse_cell(column, text))).collect();
        Ok(Value::Object(key))
    };
    reader.records().map(row).collect()
}

/// Returns the JSON field for a CSV column.
fn column_field(name: &str) -> Option<&'static str> {
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

/// Parses a cell. Text that is not a number or JSON stays a string, which is rejected later.
fn parse_cell(column: &str, text: &str) -> Value {
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

fn csv_error(error: &csv::Error) -> String {
    let line = error.position().map_or(1, csv::Position::line);
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!(
                "line {line} of keys has {len} values; the first line names {expected_len} columns"
            )
        }
        _ => format!("line {line} of keys is not valid CSV"),
    }
}

#[cfg(test)]
mod tests {
    use foundation::secret::KeyHash;

    use super::*;

    fn read(text: &str) -> Result<Vec<Value>, String> {
        parse_keys(text, "migration", "api")
    }

    fn hash() -> String {
        KeyHash::compute("abc").to_base64()
    }

    #[test]
    fn csv_columns_are_mapped_by_header() {
        let text = format!(
            "\u{feff}id,name,externalId,roles,permissions,expires,enabled,credits,meta\r\n\
            {},\"Smith, J.\",user_1,reader; writer,a.b,1,false,7,\"{{\"\"plan\"\":\"\"pro\"\"}}\"\r\n\
            {},,,,,,,,\r\n",
            hash(),
            KeyHash::compute("abd").to_hex()
        );

        let expected = json!([
            {
                "hash": hash(), "name": "Smith, J.", "externalId": "user_1",
                "roles": ["reader", "writer"], "permissions": ["a.b"], "expires": 1,
                "enabled": false, "credits": { "remaining": 7 }, "meta": { "plan": "pro" }
            },
            { "hash": KeyHash::compute("abd").to_hex() }
        ]);
        assert_eq!(read(&text).map(Value::from), Ok(expected));
    }

    #[test]
    fn json_is_accepted_as_list_or_matching_request() {
        let list = json!([{ "hash": hash(), "meta": { "a": [1] } }]);
        let expected = list.as_array().cloned();
        let with = |field: &str, value: &str| json!({ "keys": list, field: value }).to_string();

        for text in [
            list.to_string(),
            json!({ "keys": list }).to_string(),
            with("migrationId", "migration"),
            with("apiId", "api"),
        ] {
            assert_eq!(read(&text).ok(), expected);
        }
        for (text, fault) in [
            (with("migrationId", "other"), "different migrationId"),
            (with("apiId", "other"), "different apiId"),
            (with("else", "x"), "an unknown field"),
            ("{}".into(), "must be a list"),
            ("{\"keys\":1}".into(), "must be a list"),
            ("[]".into(), "contains no keys"),
            ("[1\n2]".into(), "line 2, column 1"),
            (String::new(), "is empty"),
        ] {
            assert!(read(&text).is_err_and(|message| message.contains(fault)), "{text}");
        }
    }

    #[test]
    fn csv_error_names_line_when_text_is_invalid() {
        let hash = hash();
        for (text, fault) in [
            (format!("hash,color\n{hash},red"), "the first line of keys must name"),
            (format!("{hash}\n{hash}"), "the first line of keys must name"),
            (format!("hash,id\n{hash},{hash}"), "twice"),
            ("name\na".to_owned(), "no column hash"),
            (format!("hash,name\n{hash}"), "line 2 of keys has 1 values; the first line names 2"),
            ("hash".to_owned(), "contains no keys"),
        ] {
            assert!(
                read(&text).is_err_and(|message| message.contains(fault)),
                "{text}: {:?}",
                read(&text)
            );
        }
    }

    #[test]
    fn parse_keys_rejects_more_than_10000_keys_or_a_mebibyte() {
        let rows = |many: usize| format!("hash\n{}", format!("{}\n", hash()).repeat(many));
        assert_eq!(read(&rows(10_000)).map(|keys| keys.len()), Ok(10_000));
        assert!(read(&rows(10_001)).is_err_and(|message| message.contains("at most 10,000")));

        let long = |bytes: usize| format!("hash,name\n{},{}", hash(), "x".repeat(bytes - 55));
        assert_eq!(long(PASTED_BYTES_MAX).len(), PASTED_BYTES_MAX);
        assert!(read(&long(PASTED_BYTES_MAX)).is_ok());
        assert!(
            read(&long(PASTED_BYTES_MAX + 1))
                .is_err_and(|message| message.contains("maximum is 1,048,576"))
        );
    }
}
