//! The command line. Exit status 0, 1 when something failed, 2 for wrong use; a failure is one
//! sentence on standard error that says what is wrong and what to do.

mod apis;
mod commands;
mod doctor;
mod log;
mod replicas;
mod serve;
mod startup;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use foundation::config::Config;
use foundation::model::{Algorithm, OutagePolicy, shown};

/// Issues API keys, verifies them and counts. Without a command: serves.
#[derive(Parser)]
#[command(name = "keyward", version, about)]
struct Cli {
    #[command(flatten)]
    config: Config,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve; the same as no command
    Serve,
    /// Bring the database's schema up to date
    Migrate,
    /// Root keys: what programs call Keyward with
    #[command(subcommand)]
    RootKey(RootKey),
    /// Credits that a lost Redis holds back
    #[command(subcommand)]
    Credits(Credits),
    /// Replicas that have registered, and those that are gone
    #[command(subcommand)]
    Replica(Replica),
    /// Workspaces: each owns its APIs, keys and root keys
    #[command(subcommand)]
    Workspace(Workspace),
    /// APIs, and what they are set to
    #[command(subcommand)]
    Api(Api),
    /// Sets of keys that were issued elsewhere, to be taken in by `keys.migrateKeys`
    #[command(subcommand)]
    Migration(Migration),
    /// Who changed what, from where and when
    #[command(subcommand)]
    Audit(Audit),
    /// The dashboard and who may use it
    #[command(subcommand)]
    Dashboard(Dashboard),
    /// The vault of recoverable keys
    #[command(subcommand)]
    Vault(Vault),
    /// Namespaces of the standalone rate limiter; a check makes the one that it names
    #[command(subcommand)]
    Namespace(Namespace),
    /// Print the OpenAPI document
    Openapi { version: ApiVersion },
    /// Ask the server at the listening address whether it is ready
    Health,
    /// Look at everything behind a server and say what is wrong and what to do; nothing is changed
    Doctor,
}

#[derive(Subcommand)]
enum RootKey {
    /// Make a root key; it is shown this once
    Create {
        /// What it may do, as `<type>.<id or *>.<action>`; once for each permission
        #[arg(long = "permission", required_unless_present = "all")]
        permissions: Vec<String>,
        /// Give it every permission
        #[arg(long, conflicts_with = "permissions")]
        all: bool,
        /// The workspace that it opens
        #[arg(long, default_value = "ws_default")]
        workspace: String,
        /// Your name for it
        #[arg(long)]
        name: Option<String>,
    },
    /// List the root keys of a workspace
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// End a root key for good
    Revoke { id: String },
}

#[derive(Subcommand)]
enum Credits {
    /// List the credits that keys cannot spend, because what held them is gone
    List,
    /// Give them back. Only when the Redis that held them cannot come back
    Release {
        /// Of this key
        #[arg(long, required_unless_present = "all")]
        key: Option<String>,
        /// Of every key
        #[arg(long, conflicts_with = "key")]
        all: bool,
    },
}

#[derive(Subcommand)]
enum Replica {
    /// List the replicas that have registered, and whether changes that cannot be announced wait for them
    List,
    /// Declare a replica gone, so that no change waits for it. Only when it does not serve any more
    Forget { id: String },
}

#[derive(Subcommand)]
enum Workspace {
    /// Make a workspace
    Create {
        #[arg(long)]
        name: String,
    },
}

#[derive(Subcommand)]
enum Api {
    /// List the APIs of a workspace
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Set what an API is set to; what is not named stays
    Update(Box<ApiUpdate>),
}

#[derive(Args)]
struct ApiUpdate {
    id: String,
    #[arg(long, default_value = "ws_default")]
    workspace: String,
    /// What its keys begin with, where nothing else is asked for; empty: nothing
    #[arg(long, value_name = "PREFIX")]
    default_prefix: Option<String>,
    /// How many random bytes its keys have, where nothing else is asked for: 16 to 255
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u8).range(16..))]
    default_bytes: Option<u8>,
    /// Whether sealed copies of its keys may be kept
    #[arg(long, value_name = "on|off")]
    recoverable_keys: Option<Switch>,
    /// Whether it cannot be deleted
    #[arg(long, value_name = "on|off")]
    delete_protection: Option<Switch>,
    /// From where its keys may be used, such as `10.0.0.0/8,2001:db8::1`; empty: from anywhere
    #[arg(long, value_name = "NETWORKS")]
    allow: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Subcommand)]
enum Migration {
    /// Make a migration
    Create {
        /// sha256: of the whole key, as Keyward's own; prefixed-api-key: of the last part of `prefix_short_long`
        #[arg(long, value_name = "sha256|prefixed-api-key")]
        algorithm: Algorithm,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
        /// Your name for it
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
enum Audit {
    /// List the entries of a workspace, the latest first
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
        /// Only those of this event, such as key.create
        #[arg(long)]
        event: Option<String>,
        /// Only those that this root key left, by its id
        #[arg(long)]
        actor: Option<String>,
        /// Only those about the thing of this id or name
        #[arg(long)]
        about: Option<String>,
        /// Only those before this entry, by its id
        #[arg(long)]
        before: Option<String>,
        /// How many at most: 1 to 1000
        #[arg(long, default_value = "50", value_parser = clap::value_parser!(i64).range(1..=1000))]
        limit: i64,
    },
}

#[derive(Subcommand)]
enum Dashboard {
    /// Print a link that makes an owner, once, within a day; with an e-mail that is known it sets a new password
    SetupLink {
        /// The workspace to own
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
}

#[derive(Subcommand)]
enum Vault {
    /// Seal everything with the current master key, so that the one before is not needed any more
    Rotate,
}

#[derive(Subcommand)]
enum Namespace {
    /// List the namespaces of a workspace
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Set what checks are answered while the counters are away
    Set {
        /// Its name or its id
        name: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
        /// local: each replica counts its share by itself; open: all pass; closed: none
        #[arg(long, value_name = "local|open|closed")]
        on_outage: OutagePolicy,
    },
    /// Delete a namespace for good; its name stays taken
    Delete {
        /// Its name or its id
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

/// Why a command did not do what it was asked for.
pub enum Failure {
    /// It was asked wrongly.
    Use(String),
    /// It could not be done.
    Run(String),
}

impl From<foundation::error::Error> for Failure {
    fn from(error: foundation::error::Error) -> Self {
        if error.code().status() >= 500 {
            Self::Run(error.to_string())
        } else {
            Self::Use(error.to_string())
        }
    }
}

type CommandResult = Result<(), Failure>;

/// Runs the command that the process was started with.
#[expect(clippy::print_stderr, reason = "the one sentence that a failed command says")]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("keyward: cannot start its threads: {e}");
            return ExitCode::from(1);
        }
    };
    let (code, sentence) = match runtime.block_on(run(cli)) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Use(sentence)) => (2, sentence),
        Err(Failure::Run(sentence)) => (1, sentence),
    };
    // It may quote a name.
    let lines: Vec<_> = sentence.lines().map(shown).collect();
    eprintln!("keyward: {}", lines.join("\n"));
    ExitCode::from(code)
}

async fn run(cli: Cli) -> CommandResult {
    if let Some(Command::Health) = cli.command {
        let listen = cli.config.listen().map_err(Failure::Use)?;
        return commands::health(listen).await;
    }
    let out = commands::CommandOutput { json: cli.json };
    if let Some(Command::Doctor) = cli.command {
        return Box::pin(doctor::doctor(&cli.config, out)).await;
    }
    let settings = cli.config.check().map_err(Failure::Use)?;
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
        Some(Command::Workspace(Workspace::Create { name })) => {
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
        Some(Command::Dashboard(Dashboard::SetupLink { workspace })) => {
            Box::pin(commands::setup_link(settings, out, workspace)).await
        }
        Some(Command::Vault(Vault::Rotate)) => Box::pin(commands::rotate(settings, out)).await,
        Some(Command::Openapi { version }) => commands::openapi(&settings, version),
        Some(Command::Health | Command::Doctor) => Ok(()),
    }
}
