//! Reads an uploaded or pasted file, CSV or JSON, into rows.
//!
//! The steps of an import carry the rows in their forms: the server stores nothing of a file before its keys are imported.
//! No error message repeats a value: it may be a key.

use std::collections::HashMap;

use domain::bounds::IMPORTED_KEYS_MAX;
use request::json_depth::{DEPTH_MAX, is_too_deep};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::format::format_size;

/// Limits a file, in bytes.
pub const FILE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Limits the rows in a form, in bytes: as JSON, they are larger than the file.
pub const TABLE_BYTES_MAX: usize = 3 * FILE_BYTES_MAX;
/// Limits the columns of a file.
const COLUMNS_MAX: usize = 50;

/// The rows of a file, whose columns are not mapped to fields yet.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ImportTable {
    /// The headings of CSV, or the names of the fields in JSON.
    pub columns: Vec<String>,
    pub rows: Vec<TableRow>,
    /// Where full keys were replaced by their hashes.
    #[serde(default)]
    pub hashed: HashedIn,
}

/// The line in CSV, or the position in JSON, and a value for each column. A row of CSV that has more or fewer values has none.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct TableRow(pub u64, pub Vec<Value>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HashedIn {
    /// The file has no full keys.
    #[default]
    Nowhere,
    Browser,
    Server,
}

/// Parses a file. The error is a message for the user. A file that is a request of `keys.migrateKeys` must name this
/// migration and API.
pub fn parse_file(text: &str, migration: &str, api: &str) -> Result<ImportTable, String> {
    if text.len() > FILE_BYTES_MAX {
        let [bytes, max] = [text.len(), FILE_BYTES_MAX].map(format_size);
        return Err(format!("the file has {bytes} bytes; the maximum is {max}"));
    }
    if text.contains('\u{fffd}') {
        return Err("the file is not UTF-8 text; save it as CSV UTF-8 or as JSON".into());
    }
    // Not tabs, which may separate empty cells.
    let text = text.trim_start_matches('\u{feff}').trim_matches([' ', '\r', '\n']);
    let table = match text.chars().next() {
        None => return Err("choose a file, or paste its content".into()),
        Some('[' | '{') => parse_json(text, migration, api)?,
        Some(_) => parse_csv(text)?,
    };
    check_bounds(table)
}

/// Parses the rows in a form.
pub fn parse_table(text: &str) -> Result<ImportTable, String> {
    let unreadable = || "the rows of this form cannot be read; choose the file again".to_owned();
    if is_too_deep(text.as_bytes()) {
        return Err(unreadable());
    }
    let table: ImportTable = serde_json::from_str(text).map_err(|_| unreadable())?;
    check_bounds(table)
}

fn check_bounds(table: ImportTable) -> Result<ImportTable, String> {
    let (columns, rows) = (table.columns.len(), table.rows.len());
    if rows == 0 {
        return Err("the file contains no keys".into());
    }
    check_rows(rows)?;
    if columns > COLUMNS_MAX {
        return Err(format!("the file has {columns} columns; the maximum is {COLUMNS_MAX}"));
    }
    Ok(table)
}

fn check_rows(rows: usize) -> Result<(), String> {
    if rows > IMPORTED_KEYS_MAX {
        let [rows, max] = [rows, IMPORTED_KEYS_MAX].map(format_size);
        return Err(format!("the file has {rows} keys; import at most {max} at a time"));
    }
    Ok(())
}

fn parse_json(text: &str, migration: &str, api: &str) -> Result<ImportTable, String> {
    if is_too_deep(text.as_bytes()) {
        return Err(format!("the file must not nest deeper than {DEPTH_MAX} levels"));
    }
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut values = values.collect::<Result<Vec<_>, _>>().map_err(|e| {
        format!("the file is not valid JSON at line {}, column {}", e.line(), e.column())
    })?;
    let entries = match values.as_mut_slice() {
        [Value::Array(list)] => std::mem::take(list),
        [Value::Object(request)] if request.contains_key("keys") => {
            take_keys(std::mem::take(request), migration, api)?
        }
        // One object per line, as `keyward export` prints them.
        _ => values,
    };
    // A row has a cell for each column, however many objects are empty.
    check_rows(entries.len())?;
    let (mut columns, mut indexes) = (Vec::new(), HashMap::new());
    let mut objects = Vec::with_capacity(entries.len());
    for (entry, number) in entries.into_iter().zip(1..) {
        let Value::Object(object) = entry else {
            return Err(format!("entry {number} of the file must be an object"));
        };
        for name in
            object.keys().filter(|name| !indexes.contains_key(*name)).cloned().collect::<Vec<_>>()
        {
            indexes.insert(name.clone(), columns.len());
            columns.push(name);
        }
        if columns.len() > COLUMNS_MAX {
            return Err(format!("the file has more than {COLUMNS_MAX} different fields"));
        }
        objects.push((number, object));
    }
    let row = |(number, object): (u64, Map<String, Value>)| {
        let mut cells = vec![Value::Null; columns.len()];
        for (name, value) in object {
            cells[indexes[&name]] = value;
        }
        TableRow(number, cells)
    };
    let rows = objects.into_iter().map(row).collect();
    Ok(ImportTable { rows, columns, hashed: HashedIn::Nowhere })
}

/// Takes the keys of a request of `keys.migrateKeys`.
fn take_keys(
    mut request: Map<String, Value>,
    migration: &str,
    api: &str,
) -> Result<Vec<Value>, String> {
    let keys = request.remove("keys");
    for (name, value) in request {
        let expected = match name.as_str() {
            "migrationId" => migration,
            "apiId" => api,
            _ => {
                return Err(
                    "the file has an unknown field beside keys; use only migrationId and apiId"
                        .into(),
                );
            }
        };
        if value != expected {
            return Err(format!("the file has a different {name} than this page"));
        }
    }
    match keys {
        Some(Value::Array(keys)) => Ok(keys),
        Some(_) | None => Err("the field keys of the file must be a list".into()),
    }
}

/// Parses CSV of any size. The first row has the headings.
pub fn parse_csv(text: &str) -> Result<ImportTable, String> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .flexible(true)
        .delimiter(find_delimiter(text))
        .from_reader(text.as_bytes());
    let unreadable = |e: csv::Error| {
        let line = e.position().map_or(1, csv::Position::line);
        format!("line {line} of the file is not valid CSV")
    };
    let columns: Vec<_> = reader.headers().map_err(unreadable)?.iter().map(str::to_owned).collect();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(unreadable)?;
        let line = record.position().map_or(0, |start| find_line(text, start));
        let is_complete = record.len() == columns.len();
        // Spreadsheets export empty rows below the last one.
        if record.iter().any(|cell| !cell.is_empty()) {
            let cells = record.iter().filter(|_| is_complete).map(Value::from).collect();
            rows.push(TableRow(line, cells));
        }
    }
    Ok(ImportTable { columns, rows, hashed: HashedIn::Nowhere })
}

/// Returns the line of a record. Its position is before the end of the line above and empty lines, which are skipped.
fn find_line(text: &str, start: &csv::Position) -> u64 {
    let rest = usize::try_from(start.byte()).ok().and_then(|at| text.as_bytes().get(at..));
    let ends = rest.unwrap_or_default().iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    start.line() + ends.map(|&byte| u64::from(byte == b'\n')).sum::<u64>()
}

/// Returns the separator of the first line. Where the comma is the decimal separator, spreadsheets use semicolons.
fn find_delimiter(text: &str) -> u8 {
    let first = text.lines().next().unwrap_or_default();
    let found = [b',', b';', b'\t'].into_iter().find(|&c| first.contains(char::from(c)));
    found.unwrap_or(b',')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Result<ImportTable, String> {
        parse_file(text, "migration", "api")
    }

    fn rows_of(text: &str) -> Value {
        json!(parse(text).map(|table| json!([table.columns, table.rows])))
    }

    #[test]
    fn csv_is_read_with_lines_and_any_separator() {
        let expected =
            json!({ "Ok": [["key", "name"], [[2, ["a", "Smith, J."]], [5, ["b", ""]]]] });
        for text in [
            "\u{feff}key, name\r\na,\"Smith, J.\"\r\n\r\n,\r\nb,\r\n",
            "key;name\na;Smith, J.\n;\n\nb;\n",
            "key\tname\na\tSmith, J.\n\t\n\nb\t\n",
        ] {
            assert_eq!(rows_of(text), expected, "{text}");
        }
        let short = json!({ "Ok": [["key", "name"], [[2, []], [3, []], [4, ["c", "d"]]]] });
        assert_eq!(rows_of("key,name\na\nb,c,d\nc,d"), short);
    }

    #[test]
    fn json_is_read_as_list_request_or_lines() {
        let expected = json!({ "Ok": [["hash", "name", "meta"], [[1, ["a", "x", null]], [2, ["b", null, { "n": 1 }]]]] });
        let list = json!([{ "hash": "a", "name": "x" }, { "hash": "b", "meta": { "n": 1 } }]);
        let with = |field: &str, value: &str| json!({ "keys": list, field: value }).to_string();
        for text in [
            list.to_string(),
            json!({ "keys": list }).to_string(),
            with("migrationId", "migration"),
            with("apiId", "api"),
            format!("{}\n\n{}\n", list[0], list[1]),
        ] {
            assert_eq!(rows_of(&text), expected, "{text}");
        }
        for (text, fault) in [
            (with("migrationId", "other"), "different migrationId"),
            (with("apiId", "other"), "different apiId"),
            (with("else", "x"), "an unknown field"),
            ("{\"keys\":1}".into(), "must be a list"),
            ("[]".into(), "contains no keys"),
            ("[1]".into(), "entry 1 of the file must be an object"),
            ("[1\n2]".into(), "line 2, column 1"),
            (String::new(), "choose a file"),
            ("key,name".into(), "contains no keys"),
            ("key\n\u{fffd}".into(), "not UTF-8"),
            (format!("{}{}", "[".repeat(70), "]".repeat(70)), "deeper than 64 levels"),
        ] {
            assert!(parse(&text).is_err_and(|message| message.contains(fault)), "{text}");
        }
    }

    #[test]
    fn file_is_bounded_by_bytes_rows_and_columns() {
        let rows = |count: usize| format!("key\n{}", "a\n".repeat(count));
        assert_eq!(parse(&rows(10_000)).map(|table| table.rows.len()), Ok(10_000));
        assert!(parse(&rows(10_001)).is_err_and(|message| message.contains("at most 10,000")));

        let long = |bytes: usize| format!("key\n{}", "x".repeat(bytes - 4));
        assert!(parse(&long(FILE_BYTES_MAX)).is_ok());
        assert!(
            parse(&long(FILE_BYTES_MAX + 1)).is_err_and(|e| e.contains("maximum is 2,097,152"))
        );

        let wide = |count: usize| format!("{0}\n{0}", vec!["a"; count].join(","));
        assert!(parse(&wide(50)).is_ok());
        assert!(parse(&wide(51)).is_err_and(|message| message.contains("the maximum is 50")));
        let fields = |count: usize| {
            let object: Map<_, _> = (0..count).map(|at| (at.to_string(), json!(1))).collect();
            json!([object]).to_string()
        };
        assert!(parse(&fields(50)).is_ok());
        assert!(parse(&fields(51)).is_err_and(|message| message.contains("more than 50")));
    }

    #[test]
    fn rows_in_a_form_are_read_within_the_same_bounds() {
        let table = parse("key,name\na,b").expect("a table");
        let text = json!(table).to_string();

        assert_eq!(parse_table(&text), Ok(table));
        for text in ["", "{}", "[]", "{\"columns\":[],\"rows\":[[1]]}"] {
            assert!(
                parse_table(text).is_err_and(|e| e.contains("choose the file again")),
                "{text}"
            );
        }
        let empty = json!({ "columns": ["key"], "rows": [] }).to_string();
        assert!(parse_table(&empty).is_err_and(|message| message.contains("no keys")));
    }
}
