//! Replaces full keys by their hashes, as `assets/import.js` does in the browser.

use domain::bounds::KEY_CHARS_MAX;
use foundation::model::Algorithm;
use foundation::secret::{KeyHash, split_prefixed_key};
use serde_json::{Value, json};

use super::columns::{ColumnMapping, find_field};
use super::table::{HashedIn, ImportTable};

/// The number of leading characters that are shown of a key, if it has at least four times as many.
const START_CHARS: usize = 4;

/// Limits the leading characters of a key that may be shown, in characters.
pub const START_MAX: usize = 16;

/// Why a value has no hash. It takes the place of the hash in the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFault {
    /// The key is too long.
    Length,
    /// The key has no last part, which would be hashed.
    Format,
    /// The value is no hash. The browser does not send it, because it may be a key.
    Hash,
}

impl KeyFault {
    const ALL: [(Self, &str); 3] =
        [(Self::Length, "length"), (Self::Format, "format"), (Self::Hash, "hash")];

    pub fn from_value(value: &Value) -> Option<Self> {
        let found = value.get("fault")?.as_str()?;
        Self::ALL.iter().find(|(_, name)| *name == found).map(|(fault, _)| *fault)
    }

    fn to_value(self) -> Value {
        let name = Self::ALL.iter().find(|(fault, _)| *fault == self).map(|(_, name)| *name);
        json!({ "fault": name })
    }

    /// Returns the field that the error names.
    pub fn field(self) -> &'static str {
        match self {
            Self::Length | Self::Format => "key",
            Self::Hash => "hash",
        }
    }

    /// Returns the rule that ends the sentence which the name of the field begins.
    pub fn rule(self) -> String {
        match self {
            Self::Length => format!("must have 1 to {KEY_CHARS_MAX} characters"),
            Self::Format => "must have the form prefix_short_long".to_owned(),
            Self::Hash => {
                "must be SHA-256 as 64 hexadecimal digits or 44 base64 characters".to_owned()
            }
        }
    }
}

/// Replaces the column of full keys by columns of their hashes and first characters.
pub fn hash_keys(table: &mut ImportTable, mapping: &mut ColumnMapping, algorithm: Algorithm) {
    let Some(column) = mapping.column_of("key") else { return };
    // A start in the file itself is that of the former issuer.
    let adds_start = algorithm == Algorithm::Sha256 && mapping.column_of("start").is_none();
    for row in &mut table.rows {
        let Some(cell) = row.1.get_mut(column) else { continue };
        let (hash, start) = match cell.take() {
            Value::String(key) if !key.is_empty() => hash_key(&key, algorithm),
            _ => (Value::Null, Value::Null),
        };
        *cell = hash;
        if adds_start {
            row.1.push(start);
        }
    }
    "hash".clone_into(&mut table.columns[column]);
    mapping.0[column] = find_field("hash");
    if adds_start {
        table.columns.push("start".to_owned());
        mapping.0.push(find_field("start"));
    }
    table.hashed = HashedIn::Server;
}

/// Returns the hash of a key, and the characters that may be shown of it.
fn hash_key(key: &str, algorithm: Algorithm) -> (Value, Value) {
    let chars = key.chars().count();
    if chars > KEY_CHARS_MAX {
        return (KeyFault::Length.to_value(), Value::Null);
    }
    match algorithm {
        Algorithm::Sha256 => {
            let is_long = chars >= 4 * START_CHARS;
            let start = is_long.then(|| key.chars().take(START_CHARS).collect::<String>());
            (KeyHash::compute(key).to_base64().into(), start.into())
        }
        Algorithm::PrefixedApiKey => match split_prefixed_key(key) {
            Some((_, _, long)) => (KeyHash::compute(long).to_base64().into(), Value::Null),
            None => (KeyFault::Format.to_value(), Value::Null),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::form::Form;
    use super::super::table::parse_file;
    use super::*;

    fn hash(text: &str, algorithm: Algorithm) -> (ImportTable, ColumnMapping) {
        let mut table = parse_file(text, "", "").expect("a table");
        let mut mapping = ColumnMapping::from_form(&Form::default(), &table.columns);
        hash_keys(&mut table, &mut mapping, algorithm);
        (table, mapping)
    }

    #[test]
    fn full_keys_are_replaced_by_hash_and_start() {
        let long = "sk_live_0123456789";
        let text = format!("name,key\na,{long}\nb,short_of_sixteen\nc,\nd");
        let (table, mapping) =
            hash(&text.replace("short_of_sixteen", "fifteen_letters"), Algorithm::Sha256);

        let hash = |key: &str| KeyHash::compute(key).to_base64();
        let expected = json!({
            "columns": ["name", "hash", "start"],
            "rows": [
                [2, ["a", hash(long), "sk_l"]],
                [3, ["b", hash("fifteen_letters"), null]],
                [4, ["c", null, null]],
                [5, []],
            ],
            "hashed": "server",
        });
        assert_eq!(json!(table), expected);
        let names: Vec<_> = mapping.0.iter().flatten().map(|field| field.name).collect();
        assert_eq!(names, ["name", "hash", "start"]);
        let (table, _) = self::hash(&text, Algorithm::Sha256);
        assert_eq!(table.rows[1].1[2], "shor");
    }

    #[test]
    fn last_part_is_hashed_when_keys_are_prefixed() {
        let (table, _) = hash("key\nacme_short_long1\nacme_long1", Algorithm::PrefixedApiKey);

        let expected =
            json!([[2, [KeyHash::compute("long1").to_base64()]], [3, [{ "fault": "format" }]]]);
        assert_eq!((json!(table.columns), json!(table.rows)), (json!(["hash"]), expected));
    }

    #[test]
    fn key_is_rejected_when_verification_would_not_accept_it() {
        let fault = |chars: usize| {
            let (table, _) = hash(&format!("key\n{}", "é".repeat(chars)), Algorithm::Sha256);
            KeyFault::from_value(&table.rows[0].1[0])
        };

        assert_eq!((fault(512), fault(513)), (None, Some(KeyFault::Length)));
    }

    #[test]
    fn table_without_full_keys_stays_unchanged() {
        let (table, _) = hash("hash,name\na,b", Algorithm::Sha256);

        assert_eq!(table, parse_file("hash,name\na,b", "", "").expect("a table"));
    }
}
