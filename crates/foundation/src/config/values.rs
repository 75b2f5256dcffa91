//! Parses the values of settings, and describes what is allowed if a value is invalid.

use std::net::SocketAddr;
use std::path::Path;

use crate::model::{Retention, RetentionSettings};

/// Returns the URL of a server from its own machine. The address that stands for all interfaces is not reachable, so
/// the loopback address replaces it.
pub fn local_url(listen: SocketAddr) -> String {
    let is_all = listen.ip().is_unspecified();
    if is_all { format!("http://127.0.0.1:{}", listen.port()) } else { format!("http://{listen}") }
}

/// Returns the configured URL without trailing slashes, or the local URL by default.
pub fn url_or_local(
    name: &str,
    value: Option<&String>,
    listen: SocketAddr,
) -> Result<String, String> {
    let Some(text) = value else { return Ok(local_url(listen)) };
    validate_url_scheme(name, text, &["http://", "https://"])?;
    Ok(text.trim_end_matches('/').to_owned())
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

/// Checks the scheme of a URL. The error does not contain the value, which may hold a password.
pub fn validate_url_scheme(name: &str, value: &str, schemes: &[&str]) -> Result<(), String> {
    if schemes.iter().any(|scheme| value.starts_with(scheme)) {
        return Ok(());
    }
    Err(format!("{name} must be a URL that begins with {}", schemes.join(" or ")))
}

/// The default retention of verifications, in days.
const VERIFICATIONS_RETENTION_DEFAULT: Retention =
    Retention { raw_days: 90, minute_days: 90, hour_days: 90, day_days: 365, month_days: 1095 };
/// The default retention of checks of the standalone limiter, in days.
const RATELIMITS_RETENTION_DEFAULT: Retention =
    Retention { raw_days: 30, minute_days: 7, hour_days: 30, day_days: 100, month_days: 1095 };

/// The maximum retention: ten years.
const RETENTION_DAYS_MAX: u32 = 3650;

/// Parses the retention of both kinds of events.
pub fn parse_retention(
    verifications: Option<&str>,
    ratelimits: Option<&str>,
) -> Result<RetentionSettings, String> {
    Ok(RetentionSettings {
        verifications: parse_retention_of_kind(
            "KEYWARD_VERIFICATIONS_KEPT",
            verifications,
            VERIFICATIONS_RETENTION_DEFAULT,
        )?,
        ratelimits: parse_retention_of_kind(
            "KEYWARD_RATELIMITS_KEPT",
            ratelimits,
            RATELIMITS_RETENTION_DEFAULT,
        )?,
    })
}

/// Parses days by unit, such as `raw=7,hour=30`; other units keep their default.
fn parse_retention_of_kind(
    name: &str,
    value: Option<&str>,
    default: Retention,
) -> Result<Retention, String> {
    let mut retention_days = default;
    for part in value.into_iter().flat_map(|text| text.split(',')) {
        let invalid = || {
            format!(
                "{name} has {part:?}: it must be a list such as raw=7,minute=7,hour=30,day=365,month=1095, \
                each with 1 to {RETENTION_DAYS_MAX} days"
            )
        };
        let (unit, days) = part.trim().split_once('=').ok_or_else(invalid)?;
        let days = days.parse().ok().filter(|days| (1..=RETENTION_DAYS_MAX).contains(days));
        let days = days.ok_or_else(invalid)?;
        match unit {
            "raw" => retention_days.raw_days = days,
            "minute" => retention_days.minute_days = days,
            "hour" => retention_days.hour_days = days,
            "day" => retention_days.day_days = days,
            "month" => retention_days.month_days = days,
            _ => return Err(invalid()),
        }
    }
    Ok(retention_days)
}

/// Parses `true` or `false`. The default is `false`.
pub fn parse_bool(name: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(format!("{name} is {other:?}: it must be true or false")),
    }
}

/// Parses `on` or `off`. The default is `off`.
pub fn parse_on_off(name: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("off") => Ok(false),
        Some("on") => Ok(true),
        Some(other) => Err(format!("{name} is {other:?}: it must be on or off")),
    }
}

pub fn parse_number(
    name: &str,
    value: Option<&str>,
    default: u64,
    min: u64,
    max: u64,
) -> Result<u64, String> {
    let Some(text) = value else { return Ok(default) };
    match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("{name} is {text:?}: it must be a whole number from {min} to {max}")),
    }
}
