//! What commands print: text for people or, with `--json`, JSON. On a terminal, headings are bold and states have colors,
//! unless `NO_COLOR` is set.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::OnceLock;

use anstyle::{AnsiColor, Style};
use comfy_table::{ContentArrangement, presets};
use domain::wording::format_grouped;
use foundation::clock::Timestamp;
use foundation::model::{escape_hidden, is_hidden};
use serde_json::Value;

use super::{CommandError, CommandResult};

/// The styles of headings, of what succeeded, of warnings and of what failed. They are left out where there is no terminal.
pub const HEADING: Style = Style::new().bold();
pub const SUCCESS: Style = AnsiColor::Green.on_default();
pub const WARNING: Style = AnsiColor::Yellow.on_default();
pub const FAILURE: Style = AnsiColor::Red.on_default();

/// What a cell shows if there is no value.
pub const NO_VALUE: &str = "-";
/// The space between columns.
const COLUMN_GAP: u16 = 2;
/// The headings of columns whose cells are states.
const STATE_HEADINGS: [&str; 2] = ["STATE", "STATUS"];

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
        let Table { items, header, rows } = table;
        if rows.is_empty() {
            return print_line(&format!("No {items}."));
        }
        for line in format_table(header, &rows) {
            print_line(&line);
        }
    }

    /// Prints the fields of one resource, each on a line.
    pub fn write_fields(self, fields: Vec<(&str, String)>, value: &impl Display) {
        if self.json {
            return print_line(&escape_json(value));
        }
        let row = |(name, text): (&str, String)| vec![name.to_owned(), text];
        let rows: Vec<_> = fields.into_iter().map(row).collect();
        for line in align(None, &rows) {
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

/// Returns the lines of a table, the header first, with the styles of the header and of states.
fn format_table(header: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let mut lines = align(Some(header), rows);
    if let Some(at) = header.iter().position(|name| STATE_HEADINGS.contains(name)) {
        // A state begins where the columns before it end.
        let before: Vec<_> = rows.iter().map(|row| row[..at].to_vec()).collect();
        let before = pad(Some(&header[..at]), &before);
        for ((line, before), row) in lines.iter_mut().zip(before).skip(1).zip(rows) {
            let style = state_style(&row[at]);
            line.insert_str(before.len() + row[at].len(), &format!("{style:#}"));
            line.insert_str(before.len(), &style.to_string());
        }
    }
    if let Some(first) = lines.first_mut() {
        *first = format!("{HEADING}{first}{HEADING:#}");
    }
    lines
}

/// Returns the style of a state in a list.
fn state_style(state: &str) -> Style {
    match state {
        "active" | "current" => SUCCESS,
        "deleted" | "disabled" | "exhausted" | "expired" | "revoked" => FAILURE,
        _ => Style::new(),
    }
}

/// Returns rows with aligned columns. Hidden characters are escaped, so that each row is one line.
fn align(header: Option<&[&str]>, rows: &[Vec<String>]) -> Vec<String> {
    pad(header, rows).iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Returns rows whose columns are padded, also the last one.
fn pad(header: Option<&[&str]>, rows: &[Vec<String>]) -> Vec<String> {
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
    table.lines().collect()
}

/// Returns JSON in one line, in which hidden characters, which change how text is displayed, are escaped too. They occur
/// only in strings, and whitespace that is one of them only between values, where it means nothing.
pub fn escape_json(value: &impl Display) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        match c {
            '\n' | '\r' | '\t' => {}
            c if is_hidden(c) => {
                text.extend(c.encode_utf16(&mut [0; 2]).iter().map(|u| format!("\\u{u:04x}")));
            }
            c => text.push(c),
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

/// Prints a line to standard error about a result that is on standard output, also with `--json`.
pub fn print_note(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Prints that a list has only some items, such as "the latest 2 entries", and what shows others.
pub fn print_truncation(shown: &str, limit: i64, limit_max: i64, others: &str) {
    let more = match limit < limit_max {
        true => format!("--limit shows more, up to {limit_max}"),
        false => "There are more".to_owned(),
    };
    print_note(&format!("Showing {shown}. {more}; {others}."));
}

/// Prints that a list may be incomplete, if it has as many items as are ever listed.
pub fn print_if_full(items: &str, shown: usize, shown_max: i64) {
    if i64::try_from(shown).is_ok_and(|shown| shown >= shown_max) {
        print_note(&format!("Showing {shown} {items}; there may be more."));
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
    format!("{:.0}", at.to_calendar())
}

/// Returns a value, or what stands for none.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NO_VALUE.to_owned(), |value| value.to_string())
}

/// Returns a number in a reply with thousands separators.
pub fn format_number(number: &Value) -> String {
    number.as_i64().map_or_else(|| number.to_string(), format_grouped)
}

/// Returns the start of a key: `live_3xTw…`. That of a key which was imported by its hash is unknown.
pub fn format_start(start: &str) -> String {
    match start {
        "" => NO_VALUE.to_owned(),
        start => format!("{start}…"),
    }
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

        let lines = align(Some(&["ID", "NAME", "STATUS"]), &rows);

        assert_eq!(lines, ["ID      NAME     STATUS", "key_1   請求書   x", "key_22  a\\u{a}b  -"]);
    }

    #[test]
    fn states_have_styles_wherever_their_column_is() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["請求書", "active", "active"]),
            row(["a\nb", "expired", "-"]),
            row(["c", "next", ""]),
        ];

        let lines = format_table(&["NAME", "STATUS", "ROLE"], &rows);

        let expected = [
            format!("{HEADING}NAME     STATUS   ROLE{HEADING:#}"),
            format!("請求書   {SUCCESS}active{SUCCESS:#}   active"),
            format!("a\\u{{a}}b  {FAILURE}expired{FAILURE:#}  -"),
            "c        next".to_owned(),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn time_without_a_date_is_shown_as_the_nearest_one() {
        assert_eq!(format_time(Timestamp(0)), "1970-01-01T00:00:00Z");
        assert_eq!(format_time(Timestamp(253_402_207_200_999)), "9999-12-30T22:00:00Z");
        assert_eq!(format_time(Timestamp(253_402_207_201_000)), "9999-12-30T22:00:00Z");
        assert_eq!(format_time(Timestamp(i64::MAX)), "9999-12-30T22:00:00Z");
        assert!(format_time(Timestamp(i64::MIN)).starts_with("-009999-01-02T"));
    }

    #[test]
    fn start_is_shown_if_it_is_known() {
        assert_eq!([format_start("live_3xTw"), format_start("")], ["live_3xTw…", "-"]);
    }

    #[test]
    fn nouns_agree_with_their_number() {
        assert_eq!(counted(0, "key", "keys"), "0 keys");
        assert_eq!(counted(1, "key", "keys"), "1 key");
        assert_eq!(counted(2, "identity", "identities"), "2 identities");
    }
}
