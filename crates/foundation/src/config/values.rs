//! Parses addresses, URLs and secrets, and describes what is allowed if a value is invalid.

use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr as _;

use sqlx::postgres::PgConnectOptions;

use crate::error::innermost_cause;

/// Returns the URL of a server from its own machine. The address that stands for all interfaces is not reachable, so
/// the loopback address replaces it.
pub fn local_url(listen: SocketAddr, has_tls: bool) -> String {
    let scheme = if has_tls { "https" } else { "http" };
    match listen.ip().is_unspecified() {
        true => format!("{scheme}://127.0.0.1:{}", listen.port()),
        false => format!("{scheme}://{listen}"),
    }
}

/// Returns the configured URL without trailing slashes, or the local URL by default.
pub fn url_or_local(
    name: &str,
    value: Option<&String>,
    local_url: impl FnOnce() -> String,
) -> Result<String, String> {
    let Some(text) = value else { return Ok(local_url()) };
    validate_url_scheme(name, text, &["http://", "https://"])?;
    Ok(text.trim_end_matches('/').to_owned())
}

/// The levels of `KEYWARD_LOG`.
const LOG_LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Checks the filter of the log, without its syntax. Any other word would be the target of a filter, without which
/// nothing is logged.
pub fn parse_log_filter(text: &str) -> Result<String, String> {
    let is_known = |part: &str| {
        let is_level = LOG_LEVELS.iter().any(|level| part.eq_ignore_ascii_case(level));
        is_level || part.contains(['=', '['])
    };
    match text.split(',').all(is_known) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "KEYWARD_LOG is {text:?}: each part between commas must be {} or a filter such as keyward=debug",
            LOG_LEVELS.join(", ")
        )),
    }
}

/// Returns the value of a secret, from its variable or from the file that its `_FILE` form names.
pub fn load_secret(
    name: &str,
    value: Option<&String>,
    file: Option<&Path>,
) -> Result<Option<String>, String> {
    match (value, file) {
        (Some(_), Some(_)) => Err(format!("{name} and {name}_FILE are both set: set one of them")),
        (Some(value), None) => Ok(Some(value.clone())),
        (None, None) => Ok(None),
        (None, Some(file)) => match std::fs::read_to_string(file) {
            Ok(text) => Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned())),
            Err(e) => {
                Err(format!("failed to read the file {} in {name}_FILE: {e}", file.display()))
            }
        },
    }
}

/// Checks a URL of Postgres. The error does not contain the value, which may hold a password.
pub fn validate_postgres_url(name: &str, value: &str) -> Result<(), String> {
    validate_url_scheme(name, value, &["postgres://", "postgresql://"])?;
    let Err(error) = PgConnectOptions::from_str(value) else { return Ok(()) };
    let cause = innermost_cause(&error);
    Err(format!("{name} is not a valid URL: {cause}; percent-encode special characters in it"))
}

/// Checks the scheme of a URL. The error does not contain the value, which may hold a password.
pub fn validate_url_scheme(name: &str, value: &str, schemes: &[&str]) -> Result<(), String> {
    if schemes.iter().any(|scheme| value.starts_with(scheme)) {
        return Ok(());
    }
    Err(format!("{name} must be a URL that begins with {}", schemes.join(" or ")))
}
