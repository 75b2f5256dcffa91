//! `keyward serve`: open everything, print what a person needs to know, serve, stop cleanly.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Clock;
use foundation::config::{Deployment, Settings};
use foundation::descriptors;
use foundation::secret::Plaintext;
use store::bounded;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::startup::{self, StartupInfo, make};
use super::{CommandResult, Failure};
use crate::app::App;
use crate::domain::last_used;
use crate::domain::root_keys::BootstrapResult;
use crate::domain::{admission, credits};
use crate::{analytics_worker, background, http};

/// How long a replica that stops takes for giving back the credits in its purses. The others use them
/// or find them idle, where that is too short.
const GO_BACK_TIMEOUT: Duration = Duration::from_secs(5);
/// For how long it tries to sign off after that.
const SIGN_OFF_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a server that stops notes which keys were used.
const NOTE_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until SIGTERM or SIGINT.
pub async fn serve(settings: Settings) -> CommandResult {
    if let Err(e) = descriptors::raise_limit() {
        tracing::warn!(error = %e, "failed to raise the limit on open files: {e}");
    }
    // The lock lives as long as the server.
    let _lock = match &settings.engines {
        Deployment::Embedded { data_dir } => Some(lock(data_dir)?),
        Deployment::Replica { .. } => None,
    };
    let listener = listen("KEYWARD_LISTEN", settings.listen).await?;
    let metrics_listener = match settings.security.metrics_listen {
        Some(address) => Some(listen("KEYWARD_METRICS_LISTEN", address).await?),
        None => None,
    };
    let address = listener.local_addr().unwrap_or(settings.listen);
    let (app, announcements) = App::new(settings.listening_on(address), Clock::System)?;
    let app = Arc::new(app);
    let first = startup::at_start(&app).await?;
    print_banner(&app, address, first.as_ref());

    let mut tasks = background::start(&app, announcements);
    let recorder = analytics_worker::start(&app)
        .map_err(|e| Failure::Run(format!("cannot start the thread that records events: {e}")))?;
    if first.is_none() {
        tasks.spawn(open_later(app.clone(), address));
    }
    if let Some(listener) = metrics_listener {
        tasks.spawn(http::serve_metrics(app.clone(), listener));
    }
    http::serve(app.clone(), listener, shutdown_signal()).await;
    tasks.shutdown().await;
    if let Err(e) = bounded(NOTE_TIMEOUT, last_used::flush(&app)).await {
        tracing::debug!(error = %e, "cannot note which keys were used: {e}");
    }
    admission::sync_approximate(&app).await;
    tokio::join!(recorder.stop(), go_back(&app));
    app.store.close().await;
    Ok(())
}

/// A replica that stops takes back the credits that it put into purses, and signs off.
async fn go_back(app: &App) {
    if app.redis.is_none() {
        return;
    }
    if let Err(e) = bounded(GO_BACK_TIMEOUT, credits::close_own_leases(app)).await {
        tracing::warn!(error = %e, "some credits stay in their purses: {e}");
    }
    // Whatever came of that: others would wait for this replica.
    if let Err(e) = bounded(SIGN_OFF_TIMEOUT, credits::report_and_deregister(app)).await {
        tracing::warn!(error = %e, "cannot sign off: {e}");
    }
}

async fn open_later(app: Arc<App>, address: SocketAddr) {
    let first = startup::wait_for_database(&app).await;
    tracing::info!("the database is there");
    print(&how_to_begin(&app, address, &first));
}

/// Two servers on one file would count apart.
fn lock(data_dir: &Path) -> Result<File, Failure> {
    make(data_dir)?;
    let path = data_dir.join("keyward.lock");
    let dir = data_dir.display();
    let file = File::create(&path).map_err(|e| {
        Failure::Run(format!(
            "cannot write to the data directory {dir}: {e}; make it writable, or set \
            KEYWARD_DATA_DIR to one that is"
        ))
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => Err(Failure::Run(format!(
            "another keyward serves from {dir}: stop it, or set KEYWARD_DATA_DIR to another directory"
        ))),
    }
}

async fn listen(variable: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|e| {
        Failure::Run(format!(
            "cannot listen on {address}: {e}; stop what listens there, or set {variable} to \
            another address"
        ))
    })
}

/// What a person needs to know; the rest of it follows later when the database is away.
fn print_banner(app: &App, address: SocketAddr, first: Option<&StartupInfo>) {
    let how = match &app.settings.engines {
        Deployment::Embedded { data_dir } => format!("embedded, data in {}", data_dir.display()),
        Deployment::Replica { .. } => "a replica on Postgres and Redis".to_owned(),
    };
    let version = env!("CARGO_PKG_VERSION");
    let rest = first.map(|first| how_to_begin(app, address, first)).unwrap_or_default();
    // In one piece, so that no line of the log comes between.
    print(&format!("Keyward {version} listens on http://{address} ({how})\n{rest}"));
}

fn how_to_begin(app: &App, address: SocketAddr, beginning: &StartupInfo) -> String {
    let root_key = match &beginning.first {
        BootstrapResult::Not => String::new(),
        BootstrapResult::Configured => {
            "The root key is the one in KEYWARD_ROOT_KEY; it holds every permission.\n".to_owned()
        }
        BootstrapResult::Made(key) => root_key_message(address, key.expose()),
    };
    let link = beginning.setup.as_ref().map(|token| {
        let url = setup_url(&app.settings, token);
        format!(
            "\nThe dashboard. This link makes its first person, once, within a day:\n\n    {url}\n\n"
        )
    });
    root_key + &link.unwrap_or_default()
}

/// Where the token of a link is good.
pub fn setup_url(settings: &Settings, token: &Plaintext) -> String {
    format!("{}/dashboard/join/{}", settings.public_url, token.expose())
}

fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn root_key_message(address: SocketAddr, key: &str) -> String {
    format!(
        "\nYour root key. It holds every permission and is shown only this once:\n\n    {key}\n\n\
        Make an API:\n\n    \
        curl http://{address}/v2/apis.createApi -H 'Authorization: Bearer {key}' \
        -H 'Content-Type: application/json' -d '{{\"name\":\"my first API\"}}'\n\n"
    )
}

async fn shutdown_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
