//! Opens the database: for a command, which fails if it cannot; and for a server, which starts while Postgres is
//! unreachable and keeps trying.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::app::App;
use domain::context::{Context, DATABASE_FILE, find_misplaced_redis, register_regions};
use domain::root_keys::{self, BootstrapResult};
use domain::{users, vault};
use foundation::clock::Monotonic;
use foundation::config::{Deployment, Settings};
use foundation::error::Error;
use foundation::secret::Plaintext;
use foundation::vault::{MasterKeys, file};
use store::inspect::SchemaStatus;
use store::{SchemaError, Store, with_timeout};

use super::CommandError;

/// How long a server waits for Postgres, and for Redis, at start before it starts without it.
pub const STARTUP_CONNECT_TIMEOUT: Duration = Duration::from_millis(750);
/// How long each later attempt waits for Postgres.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Limits how long Postgres may take to answer once it accepts connections.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after an attempt that could not reach Postgres.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The pause after an attempt that failed with an error that an operator must fix.
const RETRY_PAUSE_AFTER_MISCONFIGURATION: Duration = Duration::from_secs(5);

/// The data of the start-up banner, available once the database is open.
pub struct StartupInfo {
    pub bootstrap: BootstrapResult,
    /// The token of the setup link, which creates the first user; `None` if a user exists.
    pub setup_token: Option<Plaintext>,
}

/// The reason why the database cannot be used, as one sentence that says what to do.
pub enum StartupError {
    /// The database is unreachable; this may resolve without an operator.
    Unreachable(String),
    /// An operator must act, for example on a wrong password or a newer schema.
    Misconfigured(String),
}

impl From<StartupError> for CommandError {
    fn from(error: StartupError) -> Self {
        match error {
            StartupError::Unreachable(sentence) | StartupError::Misconfigured(sentence) => {
                Self::Runtime(sentence)
            }
        }
    }
}

/// Opens and migrates the configured database, and migrates the events database.
pub async fn open_store(settings: &Settings) -> Result<Store, StartupError> {
    if let Deployment::Embedded { data_dir } = &settings.deployment {
        create_data_dir(data_dir)?;
    }
    let store =
        Context::open_store(settings).await.map_err(|error| open_error(settings, &error))?;
    migrate_schemas(settings, &store).await?;
    Ok(store)
}

/// Fails if a command would create a database beside that of the server, because it was started in another directory. With
/// an absolute data directory, a command may create the database before the first start.
pub fn require_database(settings: &Settings) -> Result<(), StartupError> {
    let Deployment::Embedded { data_dir } = &settings.deployment else { return Ok(()) };
    if data_dir.is_absolute() || data_dir.join(DATABASE_FILE).exists() {
        return Ok(());
    }
    let dir = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.clone());
    Err(StartupError::Misconfigured(format!(
        "there is no database in {}: run the command in the directory in which the server was started, or set \
        KEYWARD_DATA_DIR to its data directory; the first start, or keyward migrate, creates a database",
        dir.display()
    )))
}

/// Migrates both schemas, without a time limit.
async fn migrate_schemas(settings: &Settings, store: &Store) -> Result<(), StartupError> {
    store.migrate().await.map_err(|fault| migration_error(&fault))?;
    let events =
        analytics::create_event_store(settings).map_err(|error| open_error(settings, &error))?;
    events.migrate().await.map_err(|fault| events_migration_error(&fault))?;
    events.close().await;
    Ok(())
}

/// Opens the store of a starting server. `None`: Postgres is unreachable, or its schema must be migrated, which may
/// take long; see [`wait_for_database`].
pub async fn open_at_start(app: &App) -> Result<Option<StartupInfo>, StartupError> {
    match try_open(app, STARTUP_CONNECT_TIMEOUT, MigrationTiming::Later).await {
        Ok(first) => Ok(Some(first)),
        Err(StartupError::Unreachable(cause)) if is_replica(app) => {
            tracing::warn!("started without the database: {cause}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Retries until the store of a server that started without it is open.
pub async fn wait_for_database(app: &App) -> StartupInfo {
    loop {
        match try_open(app, CONNECT_TIMEOUT, MigrationTiming::Now).await {
            Ok(first) => return first,
            Err(StartupError::Unreachable(cause)) => {
                tracing::warn!("{cause}");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(StartupError::Misconfigured(fault)) => {
                tracing::error!("{fault}");
                tokio::time::sleep(RETRY_PAUSE_AFTER_MISCONFIGURATION).await;
            }
        }
    }
}

fn is_replica(app: &App) -> bool {
    matches!(app.context.settings.deployment, Deployment::Replica { .. })
}

/// Whether an attempt may migrate an existing schema, which may take long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MigrationTiming {
    Now,
    Later,
}

/// Makes one attempt to open the store. It waits at most `connect_timeout` for Postgres to accept connections.
async fn try_open(
    app: &App,
    connect_timeout: Duration,
    upgrade: MigrationTiming,
) -> Result<StartupInfo, StartupError> {
    let settings = &app.context.settings;
    let Deployment::Replica { database_url, .. } = &settings.deployment else {
        let store = open_store(settings).await?;
        let first = bootstrap(app, &store).await?;
        return finish_startup(app, store, first).await;
    };
    Store::wait_until_reachable(database_url, connect_timeout)
        .await
        .map_err(|error| open_error(settings, &error))?;
    let store = with_ready_timeout(settings, connect(settings, upgrade)).await?;
    migrate_schemas(settings, &store).await?;
    let first = with_ready_timeout(settings, bootstrap(app, &store)).await?;
    finish_startup(app, store, first).await
}

/// Limits an attempt after Postgres has accepted a connection: it then answers soon or not at all.
async fn with_ready_timeout<T>(
    settings: &Settings,
    attempt: impl Future<Output = Result<T, StartupError>>,
) -> Result<T, StartupError> {
    let late = || Err(open_error(settings, &Error::StoreTimeout(READY_TIMEOUT.as_secs())));
    tokio::time::timeout(READY_TIMEOUT, attempt).await.unwrap_or_else(|_| late())
}

async fn connect(settings: &Settings, upgrade: MigrationTiming) -> Result<Store, StartupError> {
    let failed = |error: Error| open_error(settings, &error);
    let store = Context::open_store(settings).await.map_err(failed)?;
    if upgrade == MigrationTiming::Later {
        let events = analytics::create_event_store(settings).map_err(failed)?;
        let schemas = [
            store.load_schema().await.map_err(failed)?,
            events.load_schema().await.map_err(failed)?,
        ];
        events.close().await;
        if schemas.iter().any(SchemaStatus::is_older) {
            store.close().await;
            let cause = "its schema is from an older version of Keyward and is migrated first";
            return Err(StartupError::Unreachable(cause.to_owned()));
        }
    }
    Ok(store)
}

/// Checks what the database is used with, and then creates the first root key. It is shown only once, so nothing that
/// follows may end the start.
async fn bootstrap(app: &App, store: &Store) -> Result<BootstrapResult, StartupError> {
    let conflict = register_regions(&app.context, store)
        .await
        .map_err(|error| startup_error(error.is_outage(), error.to_string()))?;
    let conflict = match conflict {
        None => find_misplaced_redis(&app.context).await,
        conflict => conflict,
    };
    if let Some(conflict) = conflict {
        return Err(StartupError::Misconfigured(conflict));
    }
    open_vault(app, store).await?;
    root_keys::bootstrap(&app.context, store, app.context.settings.root_key.as_ref())
        .await
        .map_err(|error| startup_error(error.is_outage(), error.to_string()))
}

/// Finishes start-up and sets the store last, so that requests see only a completely initialized database.
async fn finish_startup(
    app: &App,
    store: Store,
    first: BootstrapResult,
) -> Result<StartupInfo, StartupError> {
    let has_new_root_key = matches!(first, BootstrapResult::Created(_));
    let setup = users::create_setup_invitation(&app.context, &store);
    let setup = match with_timeout(READY_TIMEOUT, setup).await {
        // For example a full disk: keys can still be verified. The next start creates a setup link.
        Err(error) if has_new_root_key || (error.is_outage() && !is_replica(app)) => {
            tracing::warn!(error = %error, "failed to create the setup link of the dashboard: {error}");
            None
        }
        setup => setup.map_err(|error| startup_error(error.is_outage(), error.to_string()))?,
    };
    app.context.store.set(store);
    app.context.freshness.record_database_reply(Monotonic::now());
    Ok(StartupInfo { bootstrap: first, setup_token: setup })
}

/// Loads the master key. Fails if a data key is sealed with a different one, so that recoverable keys are never lost
/// silently.
async fn open_vault(app: &App, store: &Store) -> Result<(), StartupError> {
    let found = master_keys(&app.context.settings).map_err(StartupError::Misconfigured)?;
    let listed = vault::list_undecryptable(store, found.as_ref()).await;
    let undecryptable =
        listed.map_err(|error| startup_error(error.is_outage(), error.to_string()))?;
    if let Some(missing) = undecryptable.missing_master_id() {
        let sealed = match undecryptable.data_keys.is_empty() {
            true => "signing keys",
            false => "recoverable keys",
        };
        return Err(StartupError::Misconfigured(missing_master_key_message(
            &app.context.settings,
            found.as_ref(),
            (sealed, missing),
        )));
    }
    let masters = match (&app.context.settings.deployment, found) {
        (Deployment::Embedded { data_dir }, None) => {
            Some(file::create(data_dir).map_err(StartupError::Misconfigured)?)
        }
        (_, found) => found,
    };
    app.context.master_keys.store(masters.map(Arc::new));
    Ok(())
}

/// Returns the configured master keys, or those in the files of an embedded server.
pub fn master_keys(settings: &Settings) -> Result<Option<MasterKeys>, String> {
    match (&settings.master_keys, &settings.deployment) {
        (Some(configured), _) => Ok(Some(configured.clone())),
        (None, Deployment::Embedded { data_dir }) => file::read(data_dir),
        (None, Deployment::Replica { .. }) => Ok(None),
    }
}

fn missing_master_key_message(
    settings: &Settings,
    found: Option<&MasterKeys>,
    (sealed, wanted): (&str, &str),
) -> String {
    let available = match found {
        None => "no master key is available".to_owned(),
        Some(found) => format!("the available master key is {}", found.current_key.id),
    };
    let todo = match &settings.deployment {
        Deployment::Embedded { data_dir } if settings.master_keys.is_none() => {
            format!("restore master.key in {}, or set KEYWARD_MASTER_KEY", data_dir.display())
        }
        Deployment::Embedded { .. } | Deployment::Replica { .. } => {
            "set KEYWARD_MASTER_KEY to it, or KEYWARD_MASTER_KEY_PREVIOUS during a rotation".into()
        }
    };
    format!("the {sealed} are sealed with master key {wanted}, but {available}; {todo}")
}

fn startup_error(is_outage: bool, sentence: String) -> StartupError {
    if is_outage {
        StartupError::Unreachable(sentence)
    } else {
        StartupError::Misconfigured(sentence)
    }
}

fn migration_error(fault: &SchemaError) -> StartupError {
    startup_error(fault.is_outage(), fault.to_string())
}

fn events_migration_error(fault: &SchemaError) -> StartupError {
    let todo = "this is the schema of events: run keyward doctor";
    startup_error(fault.is_outage(), format!("{fault}; {todo}"))
}

fn open_error(settings: &Settings, error: &Error) -> StartupError {
    let sentence = match &settings.deployment {
        Deployment::Embedded { data_dir } => {
            let todo = match error.is_outage() {
                true => "make the directory readable and writable, or set KEYWARD_DATA_DIR",
                false => "run keyward doctor, and restore the backup if the file is damaged",
            };
            let (dir, cause) = (data_dir.display(), error.innermost_message());
            format!("failed to open the database in {dir}: {cause}; {todo}")
        }
        Deployment::Replica { .. } => format!(
            "failed to reach the database: {}; check KEYWARD_DATABASE_URL and that Postgres is running",
            error.innermost_message()
        ),
    };
    startup_error(error.is_outage(), sentence)
}

/// Creates the data directory of an embedded server if it is missing.
pub fn create_data_dir(data_dir: &Path) -> Result<(), StartupError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
    created.map_err(|e| {
        let dir = data_dir.display();
        StartupError::Misconfigured(format!(
            "failed to create the data directory {dir}: {e}; create it, or set KEYWARD_DATA_DIR to a \
            writable directory"
        ))
    })
}
