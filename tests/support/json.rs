//! Formats JSON for snapshots.

use serde_json::Value;

/// A value that fits is on one line.
const WIDTH: usize = 140;

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
