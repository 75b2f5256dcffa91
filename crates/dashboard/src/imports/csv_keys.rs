//! Reads the keys of a CSV file at once, without the steps of the forms, for `keyward import`.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::columns::{ColumnMapping, to_json_text};
use super::table::{TableRow, parse_csv};

/// Returns the keys of a CSV file in the format of `keys.migrateKeys`, in which a full key is `key`. The columns are
/// recognized by their headings, as in the forms; each must be. `start` is not part of the format and is left out. Metadata is
/// the text of its cell.
///
/// The error is a message for the user. It repeats no value: it may be a key.
pub fn parse_csv_keys(text: &str) -> Result<Vec<BTreeMap<String, Box<RawValue>>>, String> {
    let table = parse_csv(text.trim_matches([' ', '\r', '\n']))?;
    let mapping = ColumnMapping::recognize(&table.columns);
    if mapping.column_of("key").or(mapping.column_of("hash")).is_none() {
        // What seems to be headings may be keys.
        return Err("line 1 must be the headings of the columns, key or hash among them".to_owned());
    }
    let numbered = mapping.0.iter().zip(1..).filter(|(field, _)| field.is_none());
    let unknown: Vec<_> = numbered.map(|(_, number): (_, usize)| number.to_string()).collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        return Err(format!("cannot import these columns; rename or remove them: {unknown}"));
    }
    let to_key = |TableRow(line, cells): TableRow| {
        if cells.is_empty() {
            let count = table.columns.len();
            return Err(format!("line {line} must have {count} values, one for each column"));
        }
        let mut key = mapping.to_key(cells);
        key.remove("start");
        let fields = key.into_iter().map(|(name, value)| to_raw_field(name, value));
        fields.collect::<Result<BTreeMap<_, _>, String>>()
    };
    table.rows.into_iter().map(to_key).collect()
}

fn to_raw_field(name: String, value: Value) -> Result<(String, Box<RawValue>), String> {
    let text = if name == "meta" { to_json_text(value) } else { value.to_string() };
    let raw = RawValue::from_string(text).map_err(|e| format!("{name} is not JSON: {e}"))?;
    Ok((name, raw))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_read_by_the_headings_of_their_columns() {
        let text =
            "hash,name,credits,roles,start,enabled\n\nh1,\"a, b\",5,x; y,sk_l,FALSE\nh2,,,,,\n";
        let expected = json!([
            {
                "hash": "h1", "name": "a, b", "credits": { "remaining": 5 }, "roles": ["x", "y"],
                "enabled": false,
            },
            { "hash": "h2" },
        ]);
        assert_eq!(json!(parse_csv_keys(text)), json!({ "Ok": expected }));
        assert!(parse_csv_keys("API key;Expires at;Scopes\r\n").is_ok_and(|keys| keys.is_empty()));
    }

    #[test]
    fn metadata_is_the_text_of_its_cell() {
        let meta = |cell: &str| {
            let keys = parse_csv_keys(&format!("key,meta\na,{cell}")).expect("a key");
            keys[0]["meta"].get().to_owned()
        };

        assert_eq!(meta(r#""{""n"": 1.50}""#), r#"{"n": 1.50}"#);
        assert_eq!(meta("abc"), r#""abc""#);
    }

    #[test]
    fn file_is_rejected_unless_every_column_and_row_can_be_read() {
        for (text, message) in [
            ("sk_live_1\nsk_live_2", "line 1 must be the headings"),
            ("name\na", "line 1 must be the headings"),
            ("key,color,owner,user\na,b,c,d", "rename or remove them: 2, 4"),
            ("sk_live_1,API key\nsk_live_2,b", "rename or remove them: 1"),
            ("key,name\na,b\n\nc\n", "line 4 must have 2 values"),
        ] {
            let error = parse_csv_keys(text).expect_err(text);
            assert!(error.contains(message) && !error.contains("sk_live"), "{error}");
        }
    }
}
