//! Compares JSON, and formats it for snapshots.

use std::collections::HashMap;

use serde_json::{Value, json};

/// Compares some fields of a value.
pub trait Fields {
    /// Fails unless the value has these fields. `expected` is an object: a name may be a path, as in
    /// `"ratelimits.0.remaining"`, and null means that there is no such field.
    fn assert_has(&self, expected: Value);

    /// Returns how the value differs from `expected`, or nothing.
    fn differences(&self, expected: &Value) -> String;
}

impl Fields for Value {
    #[track_caller]
    fn assert_has(&self, expected: Value) {
        let differences = self.differences(&expected);
        assert!(differences.is_empty(), "{differences} in {self}");
    }

    fn differences(&self, expected: &Value) -> String {
        let fields = expected.as_object().unwrap_or_else(|| panic!("{expected} is not an object"));
        let differences = fields.iter().filter_map(|(path, expected)| {
            let found = self.pointer(&format!("/{}", path.replace('.', "/")));
            if found.is_none() && expected.is_null()
                || !expected.is_null() && found == Some(expected)
            {
                return None;
            }
            let found = found.map_or("nothing".to_owned(), Value::to_string);
            Some(format!("{path} is {found} instead of {expected}"))
        });
        differences.collect::<Vec<_>>().join(", ")
    }
}

/// A value that fits is on one line.
const WIDTH: usize = 140;
/// A shorter value is repeated in a snapshot.
const SHARED_MIN_BYTES: usize = 60;

/// Replaces each object and list that has occurred before by `{"same as": "/path/of/the/first"}`. Nothing is lost: a
/// change of the first one is a change of all, and one that differs is written in full.
pub fn share_repeated(document: &Value) -> Value {
    let mut counts = HashMap::new();
    count(document, &mut counts);
    replace_repeated(document, "", &counts, &mut HashMap::new())
}

fn count(value: &Value, counts: &mut HashMap<String, usize>) {
    if !value.is_object() && !value.is_array() {
        return;
    }
    let times = counts.entry(value.to_string()).or_default();
    *times += 1;
    if *times == 1 {
        for (_, member) in members(value) {
            count(member, counts);
        }
    }
}

fn replace_repeated(
    value: &Value,
    path: &str,
    counts: &HashMap<String, usize>,
    first_paths: &mut HashMap<String, String>,
) -> Value {
    let text = value.to_string();
    if counts.get(&text).is_some_and(|times| *times > 1) && text.len() > SHARED_MIN_BYTES {
        if let Some(first) = first_paths.get(&text) {
            return json!({ "same as": first });
        }
        first_paths.insert(text, path.to_owned());
    }
    let replaced = members(value).into_iter().map(|(name, member)| {
        let member = replace_repeated(member, &format!("{path}/{name}"), counts, first_paths);
        (name, member)
    });
    match value {
        Value::Object(_) => Value::Object(replaced.collect()),
        Value::Array(_) => Value::Array(replaced.map(|(_, member)| member).collect()),
        _ => value.clone(),
    }
}

/// Returns the members of an object or a list by their names or places.
fn members(value: &Value) -> Vec<(String, &Value)> {
    match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect()
        }
        _ => Vec::new(),
    }
}

/// Formats a value so that a snapshot is short, and a difference is on one line.
pub fn format_json(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, 0, "", "", &mut text);
    text
}

/// Writes a value between a prefix and a suffix. The only member of an object is on the line of the object.
fn write_value(value: &Value, depth: usize, prefix: &str, suffix: &str, text: &mut String) {
    let indent = "  ".repeat(depth);
    let line = format!("{indent}{prefix}{value}{suffix}");
    let (brackets, members) = match value {
        Value::Object(members) if line.len() > WIDTH => {
            let named = members.iter().map(|(name, value)| (format!("{name:?}:"), value));
            (["{", "}"], named.collect::<Vec<_>>())
        }
        Value::Array(values) if line.len() > WIDTH => {
            (["[", "]"], values.iter().map(|value| (String::new(), value)).collect())
        }
        _ => {
            text.push_str(&line);
            return;
        }
    };
    if let [(name, value)] = &members[..] {
        let prefix = format!("{prefix}{}{name}", brackets[0]);
        return write_value(value, depth, &prefix, &format!("{}{suffix}", brackets[1]), text);
    }
    text.extend([&indent, prefix, brackets[0], "\n"]);
    for (name, value) in members {
        write_value(value, depth + 1, &name, "", text);
        text.push('\n');
    }
    text.extend([&indent, brackets[1], suffix]);
}
