//! Sets up logging and, in builds with the feature `otel`, traces.

use foundation::config::{LogFormat, Settings};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt};

use super::CommandError;
#[cfg(feature = "otel")]
use foundation::traces::Exporter;

/// The running log and trace exporter.
pub struct LogGuard {
    #[cfg(feature = "otel")]
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
    #[cfg(feature = "otel")]
    let exporter = Exporter::start().map_err(CommandError::Usage)?;
    #[cfg(feature = "otel")]
    let log = log.with(exporter.as_ref().map(Exporter::layer));
    log.try_init().map_err(|e| CommandError::Runtime(format!("failed to start logging: {e}")))?;
    Ok(LogGuard {
        #[cfg(feature = "otel")]
        exporter,
    })
}

impl LogGuard {
    /// Flushes pending traces and stops the exporter.
    #[cfg_attr(
        not(feature = "otel"),
        expect(clippy::unused_self, reason = "only otel builds have an exporter")
    )]
    pub fn stop(self) {
        #[cfg(feature = "otel")]
        if let Some(exporter) = self.exporter {
            exporter.stop();
        }
    }
}
