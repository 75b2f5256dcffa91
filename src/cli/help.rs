//! The short help (`-h`), which omits the settings, and the full help (`--help`).

use clap::{Command, CommandFactory as _, FromArgMatches as _};
use foundation::config::HELP_HEADING;

use super::Cli;

/// The last line of the short help.
const SHORT_POINTER: &str =
    "Run with --help to list the settings, which are flags or environment variables";
/// The last line of the full help.
const FULL_POINTER: &str =
    "Set each setting with its flag or its environment variable; a flag takes precedence";

/// Parses the command line. Incorrect usage, help and the version end the process.
pub fn parse() -> Cli {
    let command = Cli::command().mut_args(|arg| {
        let is_setting = arg.get_help_heading() == Some(HELP_HEADING);
        arg.hide_short_help(is_setting)
    });
    let matches = with_pointers(command).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn with_pointers(command: Command) -> Command {
    let command = command.after_help(SHORT_POINTER).after_long_help(FULL_POINTER);
    command.mut_subcommands(with_pointers)
}
