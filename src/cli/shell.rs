//! `keyward completions` and `keyward man`: what a shell and `man` read about the command line. They read no settings.

use std::io::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use super::output::end_of_output;
use super::{Cli, CommandError, CommandResult};

/// Prints the script that completes commands, options and their values in a shell.
pub fn print_completions(shell: Shell) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "keyward", &mut script);
    print(&script)
}

/// Writes a man page for each command to the directory, which is created if it does not exist, and replaces existing
/// pages. Without a directory, prints the page of `keyward` itself.
pub fn write_man_pages(directory: Option<&Path>) -> CommandResult {
    // The pages replace `keyward help`, so it has none.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let command = with_short_synopsis(command);
    let Some(directory) = directory else { return print_man_page(command) };
    std::fs::create_dir_all(directory).and_then(|()| write_pages(command, directory)).map_err(|e| {
        CommandError::Runtime(format!("failed to write man pages to {}: {e}", directory.display()))
    })
}

/// Replaces the synopsis, which would list every option, by the usage line of the help.
fn with_short_synopsis(mut command: Command) -> Command {
    let usage = command.render_usage().to_string();
    let synopsis = usage.trim_start_matches("Usage: ").to_owned();
    command.override_usage(synopsis).mut_subcommands(with_short_synopsis)
}

fn print_man_page(command: Command) -> CommandResult {
    let mut text = Vec::new();
    page(command)
        .render(&mut text)
        .map_err(|e| CommandError::Runtime(format!("failed to render the man page: {e}")))?;
    print(&text)
}

fn write_pages(command: Command, directory: &Path) -> std::io::Result<()> {
    for inner in command.get_subcommands() {
        write_pages(inner.clone(), directory)?;
    }
    page(command).generate_to(directory).map(drop)
}

fn page(command: Command) -> Man {
    Man::new(command).source(concat!("keyward ", env!("CARGO_PKG_VERSION")))
}

/// Writes to standard output. A closed pipe (as with `head`) is not an error.
fn print(text: &[u8]) -> CommandResult {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) => end_of_output(&error),
        Ok(()) => Ok(()),
    }
}
