//! `keyward serve`: opens the database and the listeners, prints the banner, serves, and shuts down gracefully.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::app::App;
use domain::last_used;
use domain::root_keys::BootstrapResult;
use domain::{admission, credits};
use foundation::clock::Clock;
use foundation::config::{Deployment, Settings, local_url};
use foundation::descriptors;
use foundation::secret::Plaintext;
use foundation::tls::server::ServerCertificate;
use futures_util::FutureExt as _;
use futures_util::future::OptionFuture;
use store::with_timeout;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::startup::{self, STARTUP_CONNECT_TIMEOUT, StartupInfo, create_data_dir};
use super::{CommandError, CommandResult};
use crate::{analytics_worker, background, http};

/// Limits how long a stopping replica closes its credit leases. If that is too short, other replicas use the leases or
/// close them when they are idle.
const CLOSE_LEASES_TIMEOUT: Duration = Duration::from_secs(5);
/// Limits how long the replica then tries to deregister.
const DEREGISTER_TIMEOUT: Duration = Duration::from_secs(3);
/// Limits how long a stopping server writes the last uses of keys.
const LAST_USED_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until SIGTERM or SIGINT.
pub async fn serve(settings: Settings) -> CommandResult {
    if let Err(e) = descriptors::raise_limit() {
        tracing::warn!(error = %e, "failed to raise the limit on open files: {e}");
    }
    if settings.has_cached_keys {
        tracing::warn!("KEYWARD_CACHED_KEYS is ignored; set KEYWARD_CACHE_BYTES instead");
    }
    // The lock is held until the server has stopped.
    let _lock = match &settings.deployment {
        Deployment::Embedded { data_dir } => Some(lock_data_dir(data_dir)?),
        Deployment::Replica { .. } => None,
    };
    let listener = bind("KEYWARD_LISTEN", settings.listen).await?;
    let metrics_listener =
        bind_optional("KEYWARD_METRICS_LISTEN", settings.security.metrics_listen).await?;
    let grpc_listener = bind_optional("KEYWARD_GRPC_LISTEN", settings.security.grpc_listen).await?;
    let certificate = settings.server_tls.clone().map(ServerCertificate::load).transpose();
    let certificate = certificate.map_err(CommandError::Usage)?;
    let address = listener.local_addr().unwrap_or(settings.listen);
    let (app, announcements) = App::new(settings.with_listen_address(address), Clock::System)?;
    let app = Arc::new(app);
    if let Some((_, reader, validity)) = &certificate {
        http::report_certificate(&app.context.metrics, reader, validity);
    }
    let (first, ()) = tokio::join!(startup::open_at_start(&app), connect_to_redis(&app));
    let first = first?;
    // Whoever reads the banner may stop the server.
    let stop = shutdown_signal().shared();
    print_banner(&app, address, first.as_ref()).map_err(CommandError::Runtime)?;

    let mut tasks = background::start(&app, announcements);
    let analytics_worker = analytics_worker::start(&app)
        .map_err(|e| CommandError::Runtime(format!("failed to start the analytics worker: {e}")))?;
    if first.is_none() {
        tasks.spawn(open_in_background(app.clone(), address));
    }
    let certificate = certificate.map(|(certificate, reader, _)| {
        tasks.spawn(http::renew_certificate(app.clone(), reader));
        certificate
    });
    if let Some(listener) = metrics_listener {
        tasks.spawn(http::serve_metrics(app.clone(), listener, certificate.clone()));
    }
    let grpc = OptionFuture::from(grpc_listener.map(|listener| {
        http::serve_grpc(app.clone(), listener, certificate.clone(), stop.clone())
    }));
    tokio::join!(http::serve(app.clone(), listener, certificate, stop), grpc);
    tasks.shutdown().await;
    if let Err(e) = with_timeout(LAST_USED_FLUSH_TIMEOUT, last_used::flush(&app.last_used)).await {
        tracing::debug!(error = %e, "failed to write the last uses of keys: {e}");
    }
    admission::sync_approximate(&app.admission).await;
    tokio::join!(analytics_worker.stop(), close_leases_and_deregister(&app));
    app.context.close_store().await;
    Ok(())
}

/// Connects to Redis before the first request, which would otherwise be decided without it.
async fn connect_to_redis(app: &App) {
    let Some(redis) = &app.context.redis else { return };
    if let Err(e) = redis.connect(STARTUP_CONNECT_TIMEOUT).await {
        tracing::warn!(error = %e, "started without Redis: {e}");
    }
}

/// Closes the credit leases of a stopping replica and deregisters it.
async fn close_leases_and_deregister(app: &App) {
    if app.context.redis.is_none() {
        return;
    }
    if let Err(e) =
        with_timeout(CLOSE_LEASES_TIMEOUT, credits::close_own_leases(&app.context)).await
    {
        tracing::warn!(error = %e, "failed to close credit leases: {e}");
    }
    // Deregister even if closing failed: otherwise other replicas would wait for this one.
    if let Err(e) =
        with_timeout(DEREGISTER_TIMEOUT, credits::report_and_deregister(&app.ledger)).await
    {
        tracing::warn!(error = %e, "failed to deregister the replica: {e}");
    }
}

async fn open_in_background(app: Arc<App>, address: SocketAddr) {
    let first = startup::wait_for_database(&app).await;
    tracing::info!("connected to the database");
    if let Err(fault) = print(&start_instructions(&app, address, &first), Some(&first)) {
        tracing::error!("{fault}");
    }
}

/// Locks the data directory. Two servers on one file would count separately.
fn lock_data_dir(data_dir: &Path) -> Result<File, CommandError> {
    create_data_dir(data_dir)?;
    let path = data_dir.join("keyward.lock");
    let dir = data_dir.display();
    let file = File::create(&path).map_err(|e| {
        CommandError::Runtime(format!(
            "failed to write to the data directory {dir}: {e}; make it writable, or set \
            KEYWARD_DATA_DIR to a writable directory"
        ))
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => Err(CommandError::Runtime(format!(
            "another Keyward server uses {dir}; stop it, or set KEYWARD_DATA_DIR to another directory"
        ))),
    }
}

async fn bind_optional(
    variable: &str,
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, CommandError> {
    match address {
        Some(address) => bind(variable, address).await.map(Some),
        None => Ok(None),
    }
}

async fn bind(variable: &str, address: SocketAddr) -> Result<TcpListener, CommandError> {
    TcpListener::bind(address).await.map_err(|e| {
        let todo = match e.kind() {
            io::ErrorKind::AddrInUse => {
                format!("stop the process that listens there, or set {variable} to another address")
            }
            io::ErrorKind::AddrNotAvailable => {
                format!("set {variable} to an address of this machine")
            }
            io::ErrorKind::PermissionDenied => {
                format!("set {variable} to a port that this user may use, such as one above 1023")
            }
            _ => format!("set {variable} to another address"),
        };
        CommandError::Runtime(format!("failed to listen on {address}: {e}; {todo}"))
    })
}

/// Prints the start-up banner. If the database is unreachable, the second part follows once it is available.
fn print_banner(app: &App, address: SocketAddr, first: Option<&StartupInfo>) -> Result<(), String> {
    let how = match &app.context.settings.deployment {
        Deployment::Embedded { data_dir } => format!("embedded, data in {}", data_dir.display()),
        Deployment::Replica { .. } => "a replica on Postgres and Redis".to_owned(),
    };
    let version = env!("CARGO_PKG_VERSION");
    let scheme = if app.context.settings.server_tls.is_some() { "https" } else { "http" };
    let rest = first.map(|first| start_instructions(app, address, first)).unwrap_or_default();
    // Written in one piece, so that no log line comes between.
    print(&format!("Keyward {version} listens on {scheme}://{address} ({how})\n{rest}"), first)
}

fn start_instructions(app: &App, address: SocketAddr, beginning: &StartupInfo) -> String {
    let root_key = match &beginning.bootstrap {
        BootstrapResult::AlreadyExists => String::new(),
        BootstrapResult::Configured => {
            "The root key is the value of KEYWARD_ROOT_KEY; it has all permissions.\n".to_owned()
        }
        BootstrapResult::Created(key) => {
            // A certificate is for the name in the public URL.
            let url = match &app.context.settings.server_tls {
                Some(_) => app.context.settings.public_url.clone(),
                None => local_url(address, false),
            };
            root_key_message(&url, key.expose())
        }
    };
    let link = beginning.setup_token.as_ref().map(|token| {
        let url = setup_url(&app.context.settings, token);
        format!(
            "\nSet up the dashboard. This link creates the first user, works once and expires in 24 hours:\n\n    \
            {url}\n\n"
        )
    });
    root_key + &link.unwrap_or_default()
}

/// Returns the URL of an invitation or setup link.
pub fn setup_url(settings: &Settings, token: &Plaintext) -> String {
    format!("{}/dashboard/join/{}", settings.public_url, token.expose())
}

/// Writes to standard output. Fails only if a new root key is lost thereby.
fn print(text: &str, first: Option<&StartupInfo>) -> Result<(), String> {
    let mut stdout = io::stdout();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match (written, first.map(|first| &first.bootstrap)) {
        (Err(e), Some(BootstrapResult::Created(_))) => Err(format!(
            "failed to print the new root key, which is lost: {e}; create another one with keyward root-key create --all"
        )),
        (Ok(()) | Err(_), _) => Ok(()),
    }
}

fn root_key_message(url: &str, key: &str) -> String {
    format!(
        "\nYour root key. It has all permissions and is shown only once:\n\n    {key}\n\n\
        Create an API:\n\n    \
        curl '{url}/v2/apis.createApi' -H 'Authorization: Bearer {key}' \
        -H 'Content-Type: application/json' -d '{{\"name\":\"my first API\"}}'\n\n\
        Create a key in it and verify the key, with the settings of this server:\n\n    \
        keyward key create --api API_ID\n    \
        keyward key verify KEY\n\n"
    )
}

/// Handles SIGTERM and SIGINT from now on. Returns a future that completes at the first one.
fn shutdown_signal() -> impl Future<Output = ()> {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async {
        let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}
