//! The command line. Exit status: 0 for success, 1 for a failure, 2 for incorrect usage. An error is one sentence on
//! standard error that says what happened and what to do.

mod apis;
mod commands;
mod doctor;
mod help;
mod local_server;
mod log;
mod regions;
mod replicas;
mod serve;
mod shell;
mod signing_keys;
mod startup;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use foundation::config::Config;
use foundation::model::{Algorithm, OutagePolicy, escape_hidden};

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
    RootKey(RootKeyCommand),
    /// List and release withheld credits
    #[command(subcommand)]
    Credits(CreditsCommand),
    /// List registered replicas and remove stopped ones
    #[command(subcommand)]
    Replica(ReplicaCommand),
    /// Manage workspaces, which own APIs, keys and root keys
    #[command(subcommand)]
    Workspace(WorkspaceCommand),
    /// List APIs and update their settings
    #[command(subcommand)]
    Api(ApiCommand),
    /// Manage migrations, which import keys issued elsewhere with `keys.migrateKeys`
    #[command(subcommand)]
    Migration(MigrationCommand),
    /// List audit log entries
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Manage access to the dashboard
    #[command(subcommand)]
    Dashboard(DashboardCommand),
    /// Manage the vault of recoverable keys
    #[command(subcommand)]
    Vault(VaultCommand),
    /// Manage the keys that sign assertions for the upstreams of gateways
    #[command(subcommand)]
    SigningKey(signing_keys::SigningKeyCommand),
    /// Manage namespaces of the standalone rate limiter; the first check in a namespace creates it
    #[command(subcommand)]
    Namespace(NamespaceCommand),
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
enum RootKeyCommand {
    /// Create a root key and print it once
    Create {
        /// Grant a permission, as `<type>.<id or *>.<action>`; repeatable
        #[arg(long = "permission", required_unless_present = "all")]
        permissions: Vec<String>,
        /// Grant all permissions
        #[arg(long, conflicts_with = "permissions")]
        all: bool,
        /// Set the workspace of the root key
        #[arg(long, default_value = "ws_default")]
        workspace: String,
        /// Set the name of the root key
        #[arg(long)]
        name: Option<String>,
    },
    /// List the root keys of a workspace
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Revoke a root key permanently
    Revoke { id: String },
}

#[derive(Subcommand)]
enum CreditsCommand {
    /// List withheld credits, which keys cannot spend because Redis lost their leases
    List,
    /// Return withheld credits to their accounts; use only if the lost Redis data cannot come back
    Release {
        /// Release the credits of this key
        #[arg(long, required_unless_present = "all")]
        key: Option<String>,
        /// Release the credits of all keys
        #[arg(long, conflicts_with = "key")]
        all: bool,
    },
}

#[derive(Subcommand)]
enum ReplicaCommand {
    /// List registered replicas, and whether changes that cannot be published wait for them
    List,
    /// Remove a replica, so that no change waits for it; use only if it no longer serves requests
    Forget { id: String },
}

#[derive(Subcommand)]
enum WorkspaceCommand {
    /// Create a workspace
    Create {
        #[arg(long)]
        name: String,
    },
}

#[derive(Subcommand)]
enum ApiCommand {
    /// List the APIs of a workspace
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Update API settings; omitted options keep their values
    Update(Box<ApiUpdate>),
}

#[derive(Args)]
struct ApiUpdate {
    id: String,
    #[arg(long, default_value = "ws_default")]
    workspace: String,
    /// Set the default prefix of its keys; empty: no prefix
    #[arg(long, value_name = "PREFIX")]
    default_prefix: Option<String>,
    /// Set the default number of random bytes in its keys, 16 to 255
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u8).range(16..))]
    default_bytes: Option<u8>,
    /// Allow storing encrypted copies of its keys
    #[arg(long, value_name = "on|off")]
    recoverable_keys: Option<Switch>,
    /// Protect the API from deletion
    #[arg(long, value_name = "on|off")]
    delete_protection: Option<Switch>,
    /// Set the networks from which its keys may be used, such as `10.0.0.0/8,2001:db8::1`; empty: any
    #[arg(long, value_name = "NETWORKS")]
    allow: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Subcommand)]
enum MigrationCommand {
    /// Create a migration
    Create {
        /// Set the hash algorithm; sha256: of the full key, as for native keys; prefixed-api-key: of the last part of
        /// `prefix_short_long`
        #[arg(long, value_name = "sha256|prefixed-api-key")]
        algorithm: Algorithm,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
        /// Set the name of the migration
        #[arg(long)]
        name: Option<String>,
    },
    /// List the migrations of a workspace
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
}

#[derive(Subcommand)]
enum AuditCommand {
    /// List the entries of a workspace, newest first
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
        /// Filter by event, such as key.create
        #[arg(long)]
        event: Option<String>,
        /// Filter by actor: the ID of a root key
        #[arg(long)]
        actor: Option<String>,
        /// Filter by the ID or name of the target
        #[arg(long)]
        about: Option<String>,
        /// List only entries before the entry with this ID
        #[arg(long)]
        before: Option<String>,
        /// Limit the number of entries, 1 to 1000
        #[arg(long, default_value = "50", value_parser = clap::value_parser!(i64).range(1..=1000))]
        limit: i64,
    },
}

#[derive(Subcommand)]
enum DashboardCommand {
    /// Print a single-use link, valid for 24 hours, that creates an owner or resets the password of a known e-mail
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

#[derive(Subcommand)]
enum NamespaceCommand {
    /// List the namespaces of a workspace
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Set the outage policy of a namespace
    Set {
        /// Name or ID of the namespace
        name: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
        /// Set the policy; local: each replica enforces its share; open: all checks pass; closed: no check passes
        #[arg(long, value_name = "local|open|closed")]
        on_outage: OutagePolicy,
    },
    /// Delete a namespace permanently; its name stays reserved
    Delete {
        /// Name or ID of the namespace
        name: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum ApiVersion {
    V1,
    V2,
}

/// The reason why a command failed.
pub enum CommandError {
    /// The command was used incorrectly. Exit status 2.
    Usage(String),
    /// The command could not be completed. Exit status 1.
    Runtime(String),
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

type CommandResult = Result<(), CommandError>;

/// Runs the command given on the command line.
#[expect(clippy::print_stderr, reason = "the one-sentence error of a failed command")]
pub fn main() -> ExitCode {
    let cli = help::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("keyward: failed to start the runtime threads: {e}");
            return ExitCode::from(1);
        }
    };
    let (code, sentence) = match runtime.block_on(run(cli)) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(CommandError::Usage(sentence)) => (2, sentence),
        Err(CommandError::Runtime(sentence)) => (1, sentence),
    };
    // Escape hidden characters, because the message may quote a name.
    let lines: Vec<_> = sentence.lines().map(escape_hidden).collect();
    eprintln!("keyward: {}", lines.join("\n"));
    ExitCode::from(code)
}

async fn run(cli: Cli) -> CommandResult {
    let out = commands::CommandOutput { json: cli.json };
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
        Some(Command::RootKey(command)) => {
            Box::pin(commands::root_key(settings, out, command)).await
        }
        Some(Command::Credits(command)) => {
            Box::pin(commands::credits(settings, out, command)).await
        }
        Some(Command::Replica(command)) => Box::pin(replicas::run(settings, out, command)).await,
        Some(Command::Workspace(WorkspaceCommand::Create { name })) => {
            Box::pin(commands::create_workspace(settings, out, &name)).await
        }
        Some(Command::Namespace(command)) => {
            Box::pin(commands::namespace(settings, out, command)).await
        }
        Some(Command::Api(command)) => Box::pin(apis::run(settings, out, command)).await,
        Some(Command::Migration(command)) => {
            Box::pin(commands::migration(settings, out, command)).await
        }
        Some(Command::Audit(command)) => Box::pin(commands::audit(settings, out, command)).await,
        Some(Command::Dashboard(DashboardCommand::SetupLink { workspace })) => {
            Box::pin(commands::setup_link(settings, out, workspace)).await
        }
        Some(Command::Vault(VaultCommand::Rotate)) => {
            Box::pin(commands::rotate(settings, out)).await
        }
        Some(Command::SigningKey(command)) => {
            Box::pin(signing_keys::run(settings, out, command)).await
        }
        Some(Command::Region(command)) => Box::pin(regions::run(settings, out, command)).await,
        Some(Command::Openapi { version }) => commands::openapi(&settings, version),
        Some(
            Command::Completions { .. } | Command::Man { .. } | Command::Health | Command::Doctor,
        ) => Ok(()),
    }
}
