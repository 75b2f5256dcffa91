//! Maps the columns of a file to the fields of a key.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::form::Form;

/// A field of a key, with the headings by which a column of it is recognized, in lower case without other characters than
/// letters and digits.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct ImportField {
    pub name: &'static str,
    pub label: &'static str,
    pub headings: &'static [&'static str],
}

const fn field(
    name: &'static str,
    label: &'static str,
    headings: &'static [&'static str],
) -> ImportField {
    ImportField { name, label, headings }
}

/// The fields in the order in which users choose from them.
pub static FIELDS: [ImportField; 12] = [
    field(
        "key",
        "Full key",
        &["key", "apikey", "fullkey", "plaintext", "token", "apitoken", "secret", "secretkey"],
    ),
    field("hash", "Hash", &["hash", "keyhash", "sha256", "id"]),
    field("start", "First characters", &["start"]),
    field("name", "Name", &["name", "keyname", "label"]),
    field(
        "externalId",
        "External ID",
        &["externalid", "customerid", "userid", "ownerid", "customer", "user", "owner"],
    ),
    field("roles", "Roles", &["roles", "role"]),
    field("permissions", "Permissions", &["permissions", "permission", "scopes", "scope"]),
    field(
        "expires",
        "Expires",
        &["expires", "expiresat", "expiry", "expiration", "expirationdate"],
    ),
    field("enabled", "Enabled", &["enabled", "active"]),
    field("credits", "Credits", &["credits", "remaining", "remainingcredits"]),
    field("meta", "Metadata", &["meta", "metadata"]),
    field("ratelimits", "Rate limits", &["ratelimits"]),
];

/// Which field each column has. `None`: the column is not imported.
#[derive(Debug, PartialEq, Eq)]
pub struct ColumnMapping(pub Vec<Option<&'static ImportField>>);

impl ColumnMapping {
    /// Returns the fields that the user has chosen, or recognizes them by the headings.
    pub fn from_form(form: &Form, columns: &[String]) -> Self {
        if form.values("column-0").next().is_none() {
            return Self::recognize(columns);
        }
        let chosen = |at: usize| find_field(form.text(&format!("column-{at}")));
        Self((0..columns.len()).map(chosen).collect())
    }

    /// Recognizes each field once. `id` is that of the hash only if no other column has the keys.
    pub fn recognize(columns: &[String]) -> Self {
        let headings: Vec<_> = columns.iter().map(|heading| simplify(heading)).collect();
        let has_keys = |heading: &String| {
            heading != "id"
                && FIELDS[..2].iter().any(|field| field.headings.contains(&heading.as_str()))
        };
        let has_keys = headings.iter().any(has_keys);
        let mut fields: Vec<Option<&'static ImportField>> = Vec::new();
        for heading in &headings {
            let is_id_of_hash = heading != "id" || !has_keys;
            let found = FIELDS.iter().find(|field| field.headings.contains(&heading.as_str()));
            fields.push(
                found.filter(|_| is_id_of_hash).filter(|found| !fields.contains(&Some(*found))),
            );
        }
        Self(fields)
    }

    /// Returns the column of a field.
    pub fn column_of(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|field| field.is_some_and(|field| field.name == name))
    }

    /// Returns what is wrong with the choice, for the user.
    pub fn find_fault(&self) -> Option<String> {
        let chosen =
            |field: &&ImportField| self.0.iter().filter(|it| **it == Some(*field)).count() > 1;
        if let Some(field) = FIELDS.iter().find(chosen) {
            return Some(format!("two columns are {}; choose one", field.label));
        }
        match (self.column_of("key"), self.column_of("hash")) {
            (Some(_), Some(_)) => {
                Some("both Full key and Hash are chosen; choose one of them".to_owned())
            }
            (None, None) => Some("choose the column that is Full key or Hash".to_owned()),
            (Some(_), None) | (None, Some(_)) => None,
        }
    }

    /// Returns a row as a key in the format of `keys.migrateKeys`. Empty cells are left out. Metadata in a text stays the text,
    /// because it is stored as it was written.
    pub fn to_key(&self, cells: Vec<Value>) -> Map<String, Value> {
        let fields = self.0.iter().zip(cells).filter_map(|(field, cell)| Some(((*field)?, cell)));
        let is_empty = |cell: &Value| cell.is_null() || cell.as_str() == Some("");
        let fields = fields.filter(|(_, cell)| !is_empty(cell));
        fields.map(|(field, cell)| (field.name.to_owned(), parse_cell(field.name, cell))).collect()
    }
}

pub fn find_field(name: &str) -> Option<&'static ImportField> {
    FIELDS.iter().find(|field| field.name == name)
}

/// Returns the letters and digits of a heading in lower case.
fn simplify(heading: &str) -> String {
    heading.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Parses the text of a cell. Text that is not of the type of the field stays text, which is rejected later.
fn parse_cell(field: &str, cell: Value) -> Value {
    let cell = match cell {
        Value::String(text) => parse_text(field, text),
        other => other,
    };
    match cell {
        Value::Number(_) | Value::String(_) if field == "credits" => json!({ "remaining": cell }),
        other => other,
    }
}

fn parse_text(field: &str, text: String) -> Value {
    let json = || serde_json::from_str(&text).ok();
    let parsed = match field {
        "roles" | "permissions" => {
            Some(text.split(';').map(str::trim).filter(|part| !part.is_empty()).collect())
        }
        "expires" => json().or_else(|| parse_time(&text).map(Value::from)),
        // Spreadsheets write them in capitals.
        "enabled" => serde_json::from_str(&text.to_ascii_lowercase()).ok(),
        "credits" | "ratelimits" => json(),
        _ => None,
    };
    parsed.unwrap_or(Value::String(text))
}

/// Returns a value as JSON: a text that contains JSON as it was written.
pub fn to_json_text(value: Value) -> String {
    match value {
        Value::String(text) if serde_json::from_str::<&RawValue>(&text).is_ok() => text,
        other => other.to_string(),
    }
}

/// Returns a time such as `2030-12-31T12:00:00Z`, `2030-12-31 12:00` or `2030-12-31` in Unix milliseconds. Without an offset,
/// it is in UTC.
fn parse_time(text: &str) -> Option<i64> {
    let exact = || text.parse::<jiff::Timestamp>().ok();
    let in_utc = || Some(text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp());
    exact().or_else(in_utc).map(jiff::Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use foundation::secret::KeyHash;

    use super::super::rows::read_key;
    use super::*;

    fn recognized(headings: &[&str]) -> Vec<&'static str> {
        let headings: Vec<_> = headings.iter().map(|&heading| heading.to_owned()).collect();
        let mapping = ColumnMapping::recognize(&headings);
        mapping.0.iter().map(|field| field.map_or("", |field| field.name)).collect()
    }

    fn choose(names: &[&str]) -> ColumnMapping {
        ColumnMapping(names.iter().map(|name| find_field(name)).collect())
    }

    #[test]
    fn columns_are_recognized_by_their_headings() {
        let found =
            recognized(&["API key", "External_ID", "Scopes", "expires at", "color", "user id"]);
        assert_eq!(found, ["key", "externalId", "permissions", "expires", "", ""]);
        assert_eq!(recognized(&["id", "name"]), ["hash", "name"]);
        assert_eq!(recognized(&["id", "key"]), ["", "key"]);
        for field in &FIELDS {
            assert_eq!(recognized(&[field.name]), [field.name]);
        }
    }

    #[test]
    fn choice_is_rejected_unless_one_column_has_the_keys() {
        assert_eq!(
            [choose(&["key", "name"]), choose(&["", "hash"])].map(|m| m.find_fault()),
            [None, None]
        );
        for (names, fault) in [
            (&["name"] as &[_], "choose the column"),
            (&["key", "hash"], "choose one of them"),
            (&["key", "name", "name"], "two columns are Name"),
            (&["hash", "hash"], "two columns are Hash"),
        ] {
            assert!(
                choose(names).find_fault().is_some_and(|found| found.contains(fault)),
                "{names:?}"
            );
        }
    }

    #[test]
    fn form_chooses_fields_and_leaves_out_others() {
        let columns = ["key".to_owned(), "name".to_owned()];
        let form = |text: &str| ColumnMapping::from_form(&Form::parse(text.as_bytes()), &columns);

        assert_eq!(form(""), choose(&["key", "name"]));
        assert_eq!(form("column-0=&column-1=hash&column-2=name"), choose(&["", "hash"]));
        assert_eq!(form("column-0=other"), choose(&["", ""]));
    }

    #[test]
    fn metadata_is_the_text_of_its_cell() {
        let text = r#"{"b": 12345678901234567890123, "a": 1.50}"#;

        let hash = KeyHash::compute("abc").to_base64();
        let key = choose(&["hash", "meta"]).to_key(vec![hash.into(), text.into()]);
        let meta = read_key(key).expect("a key").meta.expect("meta");

        assert_eq!(meta.as_str(), text);
        assert_eq!(to_json_text("abc".into()), r#""abc""#);
        assert_eq!(to_json_text(json!({ "a": 1 })), r#"{"a":1}"#);
    }

    #[test]
    fn cells_are_parsed_by_the_type_of_their_field() {
        let names: Vec<_> = FIELDS.iter().map(|field| field.name).collect();
        let cells =
            ["", "h", "", "7", "8", "a; b;", "x.y", "2030-01-02", "FALSE", "5", "{\"a\":1}", "[]"];
        let key = choose(&names).to_key(cells.iter().map(|&cell| cell.into()).collect());

        let expected = json!({
            "hash": "h", "name": "7", "externalId": "8", "roles": ["a", "b"], "permissions": ["x.y"],
            "expires": 1_893_542_400_000_i64, "enabled": false, "credits": { "remaining": 5 },
            "meta": "{\"a\":1}", "ratelimits": [],
        });
        assert_eq!(Value::Object(key), expected);
        for (text, expected) in [
            ("1893542400000", json!(1_893_542_400_000_i64)),
            ("2030-01-02T00:00:00Z", json!(1_893_542_400_000_i64)),
            ("2030-01-02T01:00:00+01:00", json!(1_893_542_400_000_i64)),
            ("2030-01-02 00:00", json!(1_893_542_400_000_i64)),
            ("soon", json!("soon")),
        ] {
            assert_eq!(parse_cell("expires", text.into()), expected, "{text}");
        }
        assert_eq!(parse_cell("credits", json!({ "remaining": 1 })), json!({ "remaining": 1 }));
        // The error is about a number: who fills in a cell knows of no object.
        assert_eq!(parse_cell("credits", "1,000".into()), json!({ "remaining": "1,000" }));
    }
}
