//! What commands print: text for people or, with `--json`, JSON. On a terminal, headings are bold, unless `NO_COLOR` is set.

use std::io::{self, Write as _};
use std::sync::OnceLock;

use anstyle::{AnsiColor, Style};
use comfy_table::{ContentArrangement, presets};
use foundation::clock::Timestamp;
use foundation::model::{escape_hidden, is_hidden};
use serde_json::Value;

use super::{CommandError, CommandResult};

/// The styles of headings, of what succeeded and of what failed. They are left out where there is no terminal.
pub const HEADING: Style = Style::new().bold();
pub const SUCCESS: Style = AnsiColor::Green.on_default();
pub const FAILURE: Style = AnsiColor::Red.on_default();

/// What a cell shows if there is no value.
pub const NO_VALUE: &str = "-";
/// The space between columns.
const COLUMN_GAP: u16 = 2;

/// Prints the result of a command as text or JSON.
#[derive(Debug, Clone, Copy)]
pub struct CommandOutput {
    pub json: bool,
}

impl CommandOutput {
    pub fn write(self, text: &str, value: &Value) {
        if self.json { print_line(&escape_json(value)) } else { print_line(text) }
    }

    /// Prints a list: a table with a header or, with `--json`, the values.
    pub fn write_table(self, table: Table, values: Vec<Value>) {
        if self.json {
            return print_line(&escape_json(&Value::Array(values)));
        }
        if table.rows.is_empty() {
            return print_line(&format!("No {}.", table.items));
        }
        let lines = align(Some(table.header), table.rows);
        for (at, line) in lines.into_iter().enumerate() {
            match at {
                0 => print_line(&format!("{HEADING}{line}{HEADING:#}")),
                _ => print_line(&line),
            }
        }
    }

    /// Prints the fields of one resource, each on a line.
    pub fn write_fields(self, fields: Vec<(&str, String)>, value: &Value) {
        if self.json {
            return print_line(&escape_json(value));
        }
        let row = |(name, text): (&str, String)| vec![name.to_owned(), text];
        for line in align(None, fields.into_iter().map(row).collect()) {
            let end = line.find("  ").unwrap_or(line.len());
            let (name, text) = line.split_at(end);
            print_line(&format!("{HEADING}{name}{HEADING:#}{text}"));
        }
    }
}

/// A list for people.
pub struct Table {
    /// What is listed, in the plural.
    pub items: &'static str,
    pub header: &'static [&'static str],
    pub rows: Vec<Vec<String>>,
}

/// Returns rows with aligned columns. Hidden characters are escaped, so that each row is one line.
fn align(header: Option<&[&str]>, rows: Vec<Vec<String>>) -> Vec<String> {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if let Some(header) = header {
        table.set_header(header.iter().copied());
    }
    for row in rows {
        let row: Vec<_> = row.iter().map(|cell| escape_hidden(cell)).collect();
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, COLUMN_GAP));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Returns JSON in which hidden characters, which change how text is displayed, are escaped too. They occur only in
/// strings.
pub fn escape_json(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        match is_hidden(c) {
            true => text.extend(c.encode_utf16(&mut [0; 2]).iter().map(|u| format!("\\u{u:04x}"))),
            false => text.push(c),
        }
    }
    text
}

/// The first error of writing to standard output.
static WRITE_ERROR: OnceLock<io::Error> = OnceLock::new();

/// Prints a line to standard output, without styles if it is not a terminal. Whether it could be written is known at the end of
/// the command, by [`require_written`].
pub fn print_line(text: &str) {
    if let Err(error) = writeln!(anstream::stdout(), "{text}") {
        let _ = WRITE_ERROR.set(error);
    }
}

/// Returns an error if something could not be printed: a secret, which is shown once, would be lost.
pub fn require_written() -> CommandResult {
    WRITE_ERROR.get().map_or(Ok(()), end_of_output)
}

/// Returns the result of a command whose output cannot be written. A closed pipe (as with `head`) is not an error.
pub fn end_of_output(error: &io::Error) -> CommandResult {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(CommandError::Runtime(format!("failed to write to standard output: {error}"))),
    }
}

/// Prints a line of a stream at once. Fails if it cannot be written.
pub fn try_print_line(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Returns a moment in UTC, to the second.
pub fn format_time(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
    format!("{at:.0}")
}

/// Returns a value, or what stands for none.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NO_VALUE.to_owned(), |value| value.to_string())
}

/// Returns a number with the noun that it counts, such as `1 key` or `2 keys`.
pub fn counted(number: impl ToString + Copy, singular: &str, plural: &str) -> String {
    let number = number.to_string();
    let noun = if number == "1" { singular } else { plural };
    format!("{number} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_the_width_of_their_characters() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = vec![row(["key_1", "請求書", "x"]), row(["key_22", "a\nb", "-"])];

        let lines = align(Some(&["ID", "NAME", "STATUS"]), rows);

        assert_eq!(lines, ["ID      NAME     STATUS", "key_1   請求書   x", "key_22  a\\u{a}b  -"]);
    }

    #[test]
    fn nouns_agree_with_their_number() {
        assert_eq!(counted(0, "key", "keys"), "0 keys");
        assert_eq!(counted(1, "key", "keys"), "1 key");
        assert_eq!(counted(2, "identity", "identities"), "2 identities");
    }
}
