//! What commands print: a text for people or, with `--json`, JSON.

use std::io::Write as _;

use foundation::model::is_hidden;
use serde_json::Value;

/// Prints the result of a command as text or JSON.
#[derive(Debug, Clone, Copy)]
pub struct CommandOutput {
    pub json: bool,
}

impl CommandOutput {
    pub fn write(self, text: &str, value: &Value) {
        if self.json { print_line(&escape_json(value)) } else { print_line(text) }
    }
}

/// Returns JSON in which hidden characters, which change how text is displayed, are escaped too. They occur only in
/// strings.
fn escape_json(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        match is_hidden(c) {
            true => text.extend(c.encode_utf16(&mut [0; 2]).iter().map(|u| format!("\\u{u:04x}"))),
            false => text.push(c),
        }
    }
    text
}

/// Prints a line to standard output. A closed pipe (as with `head`) is not an error.
pub fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
