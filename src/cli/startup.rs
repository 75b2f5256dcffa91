//! Opens the database: for a command, which fails if it cannot; and for a server, which starts while Postgres is
//! unreachable and keeps trying.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use foundation::config::{Deployment, Settings};
use foundation::error::Error;
use foundation::secret::Plaintext;
use foundation::vault::{MasterKeys, file};
use store::inspect::Schema;
use store::{SchemaError, Store};

use super::Failure;
use crate::app::App;
use crate::domain::root_keys::{self, BootstrapResult};
use crate::domain::{users, vault};

/// How long a server waits for Postgres at start before it starts without it.
const PATIENCE: Duration = Duration::from_millis(750);
/// How long each later attempt waits for Postgres.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Limits how long Postgres may take to answer once it accepts connections.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after an attempt that could not reach Postgres.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// The pause after an attempt that failed with an error that an operator must fix.
const AGAIN_AFTER_MISTAKE: Duration = Duration::from_secs(5);

/// The data of the start-up banner, available once the database is open.
pub struct StartupInfo {
    pub first: BootstrapResult,
    /// The token of the setup link, which creates the first user; `None` if a user exists.
    pub setup: Option<Plaintext>,
}

/// The reason why the database cannot be used, as one sentence that says what to do.
pub enum StartupError {
    /// The database is unreachable; this may resolve without an operator.
    Away(String),
    /// An operator must act, for example on a wrong password or a newer schema.
    Mistake(String),
}

impl From<StartupError> for Failure {
    fn from(error: StartupError) -> Self {
        match error {
            StartupError::Away(sentence) | StartupError::Mistake(sentence) => Self::Run(sentence),
        }
    }
}

/// Opens and migrates the configured database, and migrates the events database.
pub async fn open(settings: &Settings) -> Result<Store, StartupError> {
    if let Deployment::Embedded { data_dir } = &settings.engines {
        make(data_dir)?;
    }
    let store = App::open_store(settings).await.map_err(|error| unopened(settings, &error))?;
    migrate(settings, &store).await?;
    Ok(store)
}

/// Migrates both schemas, without a time limit.
async fn migrate(settings: &Settings, store: &Store) -> Result<(), StartupError> {
    store.migrate().await.map_err(|fault| unmigrated(&fault))?;
    let events = App::events(settings).map_err(|error| unopened(settings, &error))?;
    events.migrate().await.map_err(|fault| unmigrated(&fault))?;
    events.close().await;
    Ok(())
}

/// Opens the store of a starting server. `None`: Postgres is unreachable, or its schema must be migrated, which may
/// take long; see [`wait_for_database`].
pub async fn at_start(app: &App) -> Result<Option<StartupInfo>, StartupError> {
    match attempt(app, PATIENCE, Upgrade::Later).await {
        Ok(first) => Ok(Some(first)),
        Err(StartupError::Away(cause)) if is_replica(app) => {
            tracing::warn!("started without the database: {cause}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Retries until the store of a server that started without it is open.
pub async fn wait_for_database(app: &App) -> StartupInfo {
    loop {
        match attempt(app, CONNECT_TIMEOUT, Upgrade::Now).await {
            Ok(first) => return first,
            Err(StartupError::Away(cause)) => {
                tracing::warn!("{cause}");
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            Err(StartupError::Mistake(fault)) => {
                tracing::error!("{fault}");
                tokio::time::sleep(AGAIN_AFTER_MISTAKE).await;
            }
        }
    }
}

fn is_replica(app: &App) -> bool {
    matches!(app.settings.engines, Deployment::Replica { .. })
}

/// Whether an attempt may migrate an existing schema, which may take long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Upgrade {
    Now,
    Later,
}

/// Makes one attempt to open the store. It waits at most `connect_timeout` for Postgres to accept connections.
async fn attempt(
    app: &App,
    connect_timeout: Duration,
    upgrade: Upgrade,
) -> Result<StartupInfo, StartupError> {
    let settings = &app.settings;
    let Deployment::Replica { database_url, .. } = &settings.engines else {
        let store = open(settings).await?;
        return let_requests_in(app, store).await;
    };
    Store::wait_until_reachable(database_url, connect_timeout)
        .await
        .map_err(|error| unopened(settings, &error))?;
    let store = within(settings, connect(settings, upgrade)).await?;
    migrate(settings, &store).await?;
    within(settings, let_requests_in(app, store)).await
}

/// Limits an attempt after Postgres has accepted a connection: it then answers soon or not at all.
async fn within<T>(
    settings: &Settings,
    attempt: impl Future<Output = Result<T, StartupError>>,
) -> Result<T, StartupError> {
    let late = || Err(unopened(settings, &Error::StoreTimeout(READY_TIMEOUT.as_secs())));
    tokio::time::timeout(READY_TIMEOUT, attempt).await.unwrap_or_else(|_| late())
}

async fn connect(settings: &Settings, upgrade: Upgrade) -> Result<Store, StartupError> {
    let failed = |error: Error| unopened(settings, &error);
    let store = App::open_store(settings).await.map_err(failed)?;
    if upgrade == Upgrade::Later {
        let events = App::events(settings).map_err(failed)?;
        let schemas =
            [store.schema().await.map_err(failed)?, events.schema().await.map_err(failed)?];
        events.close().await;
        if schemas.iter().any(Schema::is_older) {
            store.close().await;
            let cause = "its schema is from an older version of Keyward and is migrated first";
            return Err(StartupError::Away(cause.to_owned()));
        }
    }
    Ok(store)
}

/// Finishes start-up and sets the store last, so that requests see only a completely initialized database.
async fn let_requests_in(app: &App, store: Store) -> Result<StartupInfo, StartupError> {
    let first = root_keys::bootstrap(app, &store, app.settings.root_key.as_ref())
        .await
        .map_err(|error| sorted(error.is_outage(), error.to_string()))?;
    open_vault(app, &store).await?;
    let setup = match users::at_start(app, &store).await {
        // For example a full disk: keys can still be verified.
        Err(error) if error.is_outage() && !is_replica(app) => {
            tracing::warn!(error = %error, "failed to create the setup link of the dashboard: {error}");
            None
        }
        setup => setup.map_err(|error| sorted(error.is_outage(), error.to_string()))?,
    };
    app.store.set(store);
    app.freshness.record_database_reply();
    Ok(StartupInfo { first, setup })
}

/// Loads the master key. Fails if a data key is sealed with a different one, so that recoverable keys are never lost
/// silently.
async fn open_vault(app: &App, store: &Store) -> Result<(), StartupError> {
    let found = master_keys(&app.settings).map_err(StartupError::Mistake)?;
    let listed = vault::list_undecryptable_data_keys(store, found.as_ref()).await;
    let undecryptable = listed.map_err(|error| sorted(error.is_outage(), error.to_string()))?;
    if let Some(first) = undecryptable.first() {
        return Err(StartupError::Mistake(lost(&app.settings, found.as_ref(), &first.master_id)));
    }
    let masters = match (&app.settings.engines, found) {
        (Deployment::Embedded { data_dir }, None) => {
            Some(file::make(data_dir).map_err(StartupError::Mistake)?)
        }
        (_, found) => found,
    };
    app.master_keys.store(masters.map(Arc::new));
    Ok(())
}

/// Returns the configured master keys, or those in the files of an embedded server.
pub fn master_keys(settings: &Settings) -> Result<Option<MasterKeys>, String> {
    match (&settings.master_keys, &settings.engines) {
        (Some(configured), _) => Ok(Some(configured.clone())),
        (None, Deployment::Embedded { data_dir }) => file::read(data_dir),
        (None, Deployment::Replica { .. }) => Ok(None),
    }
}

fn lost(settings: &Settings, found: Option<&MasterKeys>, wanted: &str) -> String {
    let available = match found {
        None => "no master key is available".to_owned(),
        Some(found) => format!("the available master key is {}", found.current.id),
    };
    let todo = match &settings.engines {
        Deployment::Embedded { data_dir } if settings.master_keys.is_none() => {
            format!("restore master.key in {}, or set KEYWARD_MASTER_KEY", data_dir.display())
        }
        Deployment::Embedded { .. } | Deployment::Replica { .. } => {
            "set KEYWARD_MASTER_KEY to it, or KEYWARD_MASTER_KEY_PREVIOUS during a rotation".into()
        }
    };
    format!("the recoverable keys are sealed with master key {wanted}, but {available}; {todo}")
}

fn sorted(is_outage: bool, sentence: String) -> StartupError {
    if is_outage { StartupError::Away(sentence) } else { StartupError::Mistake(sentence) }
}

fn unmigrated(fault: &SchemaError) -> StartupError {
    sorted(fault.is_outage(), fault.to_string())
}

fn unopened(settings: &Settings, error: &Error) -> StartupError {
    let sentence = match &settings.engines {
        Deployment::Embedded { data_dir } => format!(
            "failed to open the database in {}: {}; make the directory readable and writable, or set \
            KEYWARD_DATA_DIR",
            data_dir.display(),
            error.cause()
        ),
        Deployment::Replica { .. } => format!(
            "failed to reach the database: {}; check KEYWARD_DATABASE_URL and that Postgres is running",
            error.cause()
        ),
    };
    sorted(error.is_outage(), sentence)
}

/// Creates the data directory of an embedded server if it is missing.
pub fn make(data_dir: &Path) -> Result<(), StartupError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
    created.map_err(|e| {
        let dir = data_dir.display();
        StartupError::Mistake(format!(
            "failed to create the data directory {dir}: {e}; create it, or set KEYWARD_DATA_DIR to a \
            writable directory"
        ))
    })
}
