//! The command line. Exit status: 0 for success, 1 for a failure, 2 for incorrect usage. An error is one sentence on
//! standard error that says what happened and what to do.

mod apis;
mod audit;
mod commands;
mod credits;
mod doctor;
mod export;
mod gateway_configurations;
mod gateways;
mod help;
mod import;
mod import_faults;
mod input;
mod key_fields;
mod key_file;
mod key_list;
mod keys;
mod local_server;
mod log;
mod migrations;
mod namespaces;
mod operator;
mod output;
mod regions;
mod replicas;
mod root_keys;
mod serve;
mod shell;
mod signing_keys;
mod startup;
mod tail;
mod verify;
mod workspaces;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use foundation::config::Config;
use foundation::model::escape_hidden;

/// Issue, verify and rate-limit API keys; without a command, start the server
#[derive(Parser)]
#[command(name = "keyward", version)]
struct Cli {
    /// Print JSON
    // In the help, it follows the options of the command.
    #[arg(long, global = true, display_order = 900)]
    json: bool,
    // The heading applies to all arguments after it.
    #[command(flatten)]
    config: Config,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Start the server (default)
    Serve,
    /// Migrate the database schema to the current version
    Migrate,
    /// Manage root keys
    #[command(subcommand)]
    RootKey(root_keys::RootKeyCommand),
    /// List and release withheld credits
    #[command(subcommand)]
    Credits(credits::CreditsCommand),
    /// List registered replicas and remove stopped ones
    #[command(subcommand)]
    Replica(replicas::ReplicaCommand),
    /// Manage workspaces, which own APIs, keys and root keys
    #[command(subcommand)]
    Workspace(workspaces::WorkspaceCommand),
    /// Manage APIs, sets of keys that a backend accepts
    #[command(subcommand)]
    Api(apis::ApiCommand),
    /// Manage keys
    #[command(subcommand)]
    Key(keys::KeyCommand),
    /// Check rate limits
    #[command(subcommand)]
    Limit(verify::LimitCommand),
    /// Show verifications as they happen
    Tail(tail::TailOptions),
    /// Import keys that were issued elsewhere from a file
    Import(import::ImportOptions),
    /// Export the keys of an API with their hashes, one JSON object per line, as import reads them
    Export(export::ExportOptions),
    /// Manage migrations, which import keys issued elsewhere with `keys.migrateKeys`
    #[command(subcommand)]
    Migration(migrations::MigrationCommand),
    /// List audit log entries and undo them
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Manage access to the dashboard
    #[command(subcommand)]
    Dashboard(DashboardCommand),
    /// Manage the vault of recoverable keys
    #[command(subcommand)]
    Vault(VaultCommand),
    /// Manage the keys that sign assertions for the upstreams of gateways
    #[command(subcommand)]
    SigningKey(signing_keys::SigningKeyCommand),
    /// Manage gateway policies, and print configurations of gateways for them
    #[command(subcommand)]
    Gateway(gateways::GatewayCommand),
    /// Manage namespaces of the standalone rate limiter; the first check in a namespace creates it
    #[command(subcommand)]
    Namespace(namespaces::NamespaceCommand),
    /// List the regions that share limits, and move what they count
    #[command(subcommand)]
    Region(regions::RegionCommand),
    /// Print the OpenAPI document
    Openapi { version: ApiVersion },
    /// Check whether the server at the listening address is ready
    Health,
    /// Check configuration and dependencies and suggest fixes; read-only
    Doctor,
    /// Print a script that completes commands and options in a shell
    Completions { shell: Shell },
    /// Print the man page of keyward, or write the pages of all commands to a directory
    Man {
        /// Write one page for each command to this directory, and replace existing pages
        #[arg(long)]
        directory: Option<PathBuf>,
    },
}

#[derive(Subcommand)]
enum DashboardCommand {
    /// Print a single-use link, valid for 24 hours, that creates an owner or resets the password of a member
    SetupLink {
        /// Set the workspace of the owner
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
}

#[derive(Subcommand)]
enum VaultCommand {
    /// Re-encrypt all data keys and signing keys with the current master key, so that the previous one is no longer needed
    Rotate,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum ApiVersion {
    V1,
    V2,
}

/// A setting of a resource that is on or off.
#[derive(Clone, Copy, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

impl Switch {
    pub fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}

/// The reason why a command failed.
pub enum CommandError {
    /// The command was used incorrectly. Exit status 2.
    Usage(String),
    /// The command could not be completed. Exit status 1.
    Runtime(String),
    /// The command has printed its result, which is negative, such as that a key is not valid. Exit status 1.
    Negative,
}

impl From<foundation::error::Error> for CommandError {
    fn from(error: foundation::error::Error) -> Self {
        if error.code().status() >= 500 {
            Self::Runtime(error.to_string())
        } else {
            Self::Usage(error.to_string())
        }
    }
}

impl CommandError {
    /// Adds before the cause what the command had done when it failed.
    fn with_context(self, done: &str) -> Self {
        match self {
            Self::Usage(cause) => Self::Usage(format!("{done}: {cause}")),
            Self::Runtime(cause) => Self::Runtime(format!("{done}: {cause}")),
            Self::Negative => Self::Negative,
        }
    }
}

type CommandResult = Result<(), CommandError>;

/// Runs the command given on the command line.
pub fn main() -> ExitCode {
    let cli = match help::parse() {
        Ok(cli) => cli,
        Err(error) => return report(error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            print_error(&format!("failed to start the runtime threads: {e}"));
            return ExitCode::from(1);
        }
    };
    match runtime.block_on(run(cli)).and_then(|()| output::require_written()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(error),
    }
}

/// Prints why a command failed and returns its exit status.
fn report(error: CommandError) -> ExitCode {
    let (code, sentence) = match error {
        CommandError::Usage(sentence) => (2, sentence),
        CommandError::Runtime(sentence) => (1, sentence),
        CommandError::Negative => return ExitCode::from(1),
    };
    // Escape hidden characters, because the message may quote a name.
    let lines: Vec<_> = sentence.lines().map(escape_hidden).collect();
    print_error(&lines.join("\n"));
    ExitCode::from(code)
}

/// Prints an error, without styles if standard error is not a terminal.
fn print_error(text: &str) {
    let style = output::FAILURE;
    let _ = writeln!(anstream::stderr(), "{style}keyward:{style:#} {text}");
}

async fn run(cli: Cli) -> CommandResult {
    let out = output::CommandOutput { json: cli.json };
    // These commands work without valid settings.
    match &cli.command {
        Some(Command::Completions { shell }) => return shell::print_completions(*shell),
        Some(Command::Man { directory }) => return shell::write_man_pages(directory.as_deref()),
        Some(Command::Health) => return local_server::health(&cli.config).await,
        Some(Command::Doctor) => return Box::pin(doctor::doctor(&cli.config, out)).await,
        _ => {}
    }
    let settings = cli.config.validate().map_err(CommandError::Usage)?;
    match cli.command {
        None | Some(Command::Serve) => {
            let log = log::start(&settings)?;
            let served = serve::serve(settings).await;
            log.stop();
            served
        }
        Some(Command::Migrate) => {
            let log = log::start(&settings)?;
            let migrated = commands::migrate(settings, out).await;
            log.stop();
            migrated
        }
        Some(Command::RootKey(command)) => Box::pin(root_keys::run(settings, out, command)).await,
        Some(Command::Credits(command)) => Box::pin(credits::run(settings, out, command)).await,
        Some(Command::Replica(command)) => Box::pin(replicas::run(settings, out, command)).await,
        Some(Command::Workspace(command)) => {
            Box::pin(workspaces::run(settings, out, command)).await
        }
        Some(Command::Namespace(command)) => {
            Box::pin(namespaces::run(settings, out, command)).await
        }
        Some(Command::Api(command)) => Box::pin(apis::run(settings, out, command)).await,
        Some(Command::Key(command)) => Box::pin(keys::run(settings, out, command)).await,
        Some(Command::Limit(command)) => Box::pin(verify::run_limit(settings, out, command)).await,
        Some(Command::Tail(options)) => Box::pin(tail::run(settings, out, options)).await,
        Some(Command::Import(options)) => Box::pin(import::run(settings, out, options)).await,
        Some(Command::Export(options)) => Box::pin(export::run(settings, out, options)).await,
        Some(Command::Migration(command)) => {
            Box::pin(migrations::run(settings, out, command)).await
        }
        Some(Command::Audit(command)) => Box::pin(audit::run(settings, out, command)).await,
        Some(Command::Dashboard(DashboardCommand::SetupLink { workspace })) => {
            Box::pin(commands::setup_link(settings, out, workspace)).await
        }
        Some(Command::Vault(VaultCommand::Rotate)) => {
            Box::pin(commands::rotate(settings, out)).await
        }
        Some(Command::SigningKey(command)) => {
            Box::pin(signing_keys::run(settings, out, command)).await
        }
        Some(Command::Gateway(command)) => Box::pin(gateways::run(settings, out, command)).await,
        Some(Command::Region(command)) => Box::pin(regions::run(settings, out, command)).await,
        Some(Command::Openapi { version }) => commands::openapi(&settings, version),
        Some(
            Command::Completions { .. } | Command::Man { .. } | Command::Health | Command::Doctor,
        ) => Ok(()),
    }
}
