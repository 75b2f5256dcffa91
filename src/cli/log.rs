//! Sets up logging and traces.

use foundation::config::{LogFormat, Settings};
use foundation::traces::Exporter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt};

use super::CommandError;

/// The running log and exporter of traces.
pub struct LogGuard {
    exporter: Option<Exporter>,
}

/// Starts logging to standard error, so that standard output contains only the result of a command.
pub fn start(settings: &Settings) -> Result<LogGuard, CommandError> {
    let filter = EnvFilter::try_new(&settings.log).map_err(|e| {
        let text = &settings.log;
        CommandError::Usage(format!(
            "KEYWARD_LOG is {text:?}, which is neither a level (error, warn, info, debug, trace) \
            nor a filter: {e}"
        ))
    })?;
    // Postgres sends a notice at every start that the migrations table already exists. Spans are only for traces.
    let silent = ["sqlx::postgres::notice=off", "keyward::traces=off"];
    let silent = silent.into_iter().filter_map(|directive| directive.parse().ok());
    let filter = silent.fold(filter, EnvFilter::add_directive);
    let lines = fmt::layer::<Registry>().with_writer(std::io::stderr);
    let lines = match settings.log_format {
        LogFormat::Text => {
            lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).boxed()
        }
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let log = tracing_subscriber::registry().with(lines.with_filter(filter));
    let (exporter, fault) = match Exporter::start() {
        Ok(exporter) => (exporter, None),
        Err(fault) => (None, Some(fault)),
    };
    let log = log.with(exporter.as_ref().map(Exporter::layer));
    log.try_init().map_err(|e| CommandError::Runtime(format!("failed to start logging: {e}")))?;
    if let Some(fault) = fault {
        tracing::warn!("no traces are sent: {fault}");
    }
    Ok(LogGuard { exporter })
}

impl LogGuard {
    /// Flushes pending traces and stops the exporter.
    pub fn stop(self) {
        if let Some(exporter) = self.exporter {
            exporter.stop();
        }
    }
}
