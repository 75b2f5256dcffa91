//! The short help (`-h`), which omits the settings, the full help (`--help`), and errors about incorrect usage.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, FromArgMatches as _};
use foundation::config::{Config, HELP_HEADING};

use super::{Cli, CommandError};

/// The last line of the short help.
const SHORT_POINTER: &str =
    "Run with --help to list the settings, which are flags or environment variables";
/// The last line of the full help.
const FULL_POINTER: &str =
    "Set each setting with its flag or its environment variable; a flag takes precedence";

/// Parses the command line. Help and the version end the process.
pub fn parse() -> Result<Cli, CommandError> {
    let command = Cli::command().mut_args(|arg| {
        let is_setting = arg.get_help_heading() == Some(HELP_HEADING);
        arg.hide_short_help(is_setting)
    });
    let matches = with_pointers(command).try_get_matches();
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
            _ => CommandError::Usage(describe_usage_error(&error)),
        }
    })
}

fn with_pointers(command: Command) -> Command {
    let command = command.after_help(SHORT_POINTER).after_long_help(FULL_POINTER);
    command.mut_subcommands(with_pointers)
}

/// Returns what is missing or wrong, in one sentence without the usage of the command.
fn describe_usage_error(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::MissingRequiredArgument
        && let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg)
    {
        return format!("missing {}", missing.join(" and "));
    }
    if error.kind() == ErrorKind::InvalidUtf8 {
        return describe_encoding_error();
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end =
        ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|end| text.find(end)).min();
    let sentences: Vec<_> = text[..end.unwrap_or(text.len())]
        .split("\n\n")
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    sentences.join("; ")
}

/// Names the variables that are not encoded in UTF-8, without their values, which may be secrets.
fn describe_encoding_error() -> String {
    let is_encoded =
        |name: &String| std::env::var_os(name).is_none_or(|value| value.to_str().is_some());
    let variables = Config::list_variables();
    let names: Vec<_> = variables.into_iter().filter(|name| !is_encoded(name)).collect();
    match names.is_empty() {
        true => "an argument is not encoded in UTF-8".to_owned(),
        false => format!("not encoded in UTF-8: {}", names.join(", ")),
    }
}
