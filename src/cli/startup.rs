//! Opening the database: for a command, which fails where it cannot; and for a server, which starts
//! without a Postgres that is away and goes on trying.

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

/// How long a start waits for Postgres before it goes on without.
const PATIENCE: Duration = Duration::from_millis(750);
/// How long a server that is there without one waits for it at a time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a Postgres that has let a connection in may take to be ready for requests.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after an attempt that found Postgres away.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// The pause after one that found something that only a person can put right.
const AGAIN_AFTER_MISTAKE: Duration = Duration::from_secs(5);

/// What a person needs to begin, once the database is there.
pub struct StartupInfo {
    pub first: BootstrapResult,
    /// The token of the link that makes the first person; absent once there is one.
    pub setup: Option<Plaintext>,
}

/// Why there is no database to work on, as one sentence that says what to do.
pub enum StartupError {
    /// It may come back by itself.
    Away(String),
    /// It waits for a person: a wrong password, a schema that is newer.
    Mistake(String),
}

impl From<StartupError> for Failure {
    fn from(unopened: StartupError) -> Self {
        match unopened {
            StartupError::Away(sentence) | StartupError::Mistake(sentence) => Self::Run(sentence),
        }
    }
}

/// Opens and migrates the database that the settings name, and that of events.
pub async fn open(settings: &Settings) -> Result<Store, StartupError> {
    if let Deployment::Embedded { data_dir } = &settings.engines {
        make(data_dir)?;
    }
    let store = App::open_store(settings).await.map_err(|error| unopened(settings, &error))?;
    migrate(settings, &store).await?;
    Ok(store)
}

/// Brings both schemas up to date, however long that takes.
async fn migrate(settings: &Settings, store: &Store) -> Result<(), StartupError> {
    store.migrate().await.map_err(|fault| unmigrated(&fault))?;
    let events = App::events(settings).map_err(|error| unopened(settings, &error))?;
    events.migrate().await.map_err(|fault| unmigrated(&fault))?;
    events.close().await;
    Ok(())
}

/// Opens the store of a server that starts. `None`: its Postgres is away, or has a schema that is to be brought up to
/// date, which may take long; see [`until_it_is_there`].
pub async fn at_start(app: &App) -> Result<Option<StartupInfo>, StartupError> {
    match attempt(app, PATIENCE, Upgrade::Later).await {
        Ok(first) => Ok(Some(first)),
        Err(StartupError::Away(cause)) if is_replica(app) => {
            tracing::warn!("starting without the database: {cause}");
            Ok(None)
        }
        Err(unopened) => Err(unopened),
    }
}

/// Opens the store of a server that started without it, as soon as that is possible.
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

/// Whether an attempt may bring a schema that is in use up to date, which may take long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Upgrade {
    Now,
    Later,
}

/// One attempt, which waits for Postgres itself no longer than `patience`.
async fn attempt(
    app: &App,
    patience: Duration,
    upgrade: Upgrade,
) -> Result<StartupInfo, StartupError> {
    let settings = &app.settings;
    let Deployment::Replica { database_url, .. } = &settings.engines else {
        let store = open(settings).await?;
        return let_requests_in(app, store).await;
    };
    Store::wait_until_reachable(database_url, patience)
        .await
        .map_err(|error| unopened(settings, &error))?;
    let store = within(settings, connect(settings, upgrade)).await?;
    migrate(settings, &store).await?;
    within(settings, let_requests_in(app, store)).await
}

/// Postgres has let a connection in, so what is asked of it is answered soon or not at all.
async fn within<T>(
    settings: &Settings,
    attempt: impl Future<Output = Result<T, StartupError>>,
) -> Result<T, StartupError> {
    let late = || Err(unopened(settings, &Error::StoreTimeout(READY_TIMEOUT.as_secs())));
    tokio::time::timeout(READY_TIMEOUT, attempt).await.unwrap_or_else(|_| late())
}

async fn connect(settings: &Settings, upgrade: Upgrade) -> Result<Store, StartupError> {
    let away = |error: Error| unopened(settings, &error);
    let store = App::open_store(settings).await.map_err(away)?;
    if upgrade == Upgrade::Later {
        let events = App::events(settings).map_err(away)?;
        let schemas = [store.schema().await.map_err(away)?, events.schema().await.map_err(away)?];
        events.close().await;
        if schemas.iter().any(Schema::is_older) {
            store.close().await;
            let cause = "its schema is of an older keyward, and is brought up to date first";
            return Err(StartupError::Away(cause.to_owned()));
        }
    }
    Ok(store)
}

/// Requests are let in last, to a database that is whole.
async fn let_requests_in(app: &App, store: Store) -> Result<StartupInfo, StartupError> {
    let first = root_keys::bootstrap(app, &store, app.settings.root_key.as_ref())
        .await
        .map_err(|error| sorted(error.is_outage(), error.to_string()))?;
    open_vault(app, &store).await?;
    let setup = match users::at_start(app, &store).await {
        // Such as a full disk: keys can be verified all the same.
        Err(error) if error.is_outage() && !is_replica(app) => {
            tracing::warn!(error = %error, "failed to make a link that sets up the dashboard: {error}");
            None
        }
        setup => setup.map_err(|error| sorted(error.is_outage(), error.to_string()))?,
    };
    app.store.set(store);
    app.freshness.record_database_reply();
    Ok(StartupInfo { first, setup })
}

/// Finds the master key, and refuses to go on where something is sealed that it does not open: what is sealed is
/// never lost without a word.
async fn open_vault(app: &App, store: &Store) -> Result<(), StartupError> {
    let found = master_keys(&app.settings).map_err(StartupError::Mistake)?;
    let outcome = vault::list_undecryptable_data_keys(store, found.as_ref()).await;
    let unopened = outcome.map_err(|error| sorted(error.is_outage(), error.to_string()))?;
    if let Some(first) = unopened.first() {
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

/// The configured master keys, or those in the files of an embedded server.
pub fn master_keys(settings: &Settings) -> Result<Option<MasterKeys>, String> {
    match (&settings.master_keys, &settings.engines) {
        (Some(configured), _) => Ok(Some(configured.clone())),
        (None, Deployment::Embedded { data_dir }) => file::read(data_dir),
        (None, Deployment::Replica { .. }) => Ok(None),
    }
}

fn lost(settings: &Settings, found: Option<&MasterKeys>, wanted: &str) -> String {
    let there = match found {
        None => "there is no master key".to_owned(),
        Some(found) => format!("the master key here is {}", found.current.id),
    };
    let do_what = match &settings.engines {
        Deployment::Embedded { data_dir } if settings.master_keys.is_none() => {
            format!("put master.key back into {}, or set KEYWARD_MASTER_KEY", data_dir.display())
        }
        Deployment::Embedded { .. } | Deployment::Replica { .. } => {
            "set KEYWARD_MASTER_KEY to it, or KEYWARD_MASTER_KEY_PREVIOUS while it is replaced"
                .into()
        }
    };
    format!("the recoverable keys are sealed with master key {wanted}, and {there}: {do_what}")
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
            "cannot open the database in {}: {}; make the directory readable and writable, or set \
            KEYWARD_DATA_DIR",
            data_dir.display(),
            error.cause()
        ),
        Deployment::Replica { .. } => format!(
            "cannot reach the database: {}; check KEYWARD_DATABASE_URL and that Postgres runs",
            error.cause()
        ),
    };
    sorted(error.is_outage(), sentence)
}

/// Makes the data directory of an embedded server where it is missing.
pub fn make(data_dir: &Path) -> Result<(), StartupError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
    made.map_err(|e| {
        let dir = data_dir.display();
        StartupError::Mistake(format!(
            "cannot make the data directory {dir}: {e}; make it, or set KEYWARD_DATA_DIR to one \
            that can be written"
        ))
    })
}
