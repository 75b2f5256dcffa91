//! How the text of a variable is read, and what is said of one that cannot be used.

use std::net::SocketAddr;
use std::path::Path;

use crate::model::{Retention, RetentionSettings};

/// How a server is reached from its own machine: nobody can go to the address that stands for all.
pub fn local_url(listen: SocketAddr) -> String {
    let is_all = listen.ip().is_unspecified();
    if is_all { format!("http://127.0.0.1:{}", listen.port()) } else { format!("http://{listen}") }
}

/// Where something is reached, unless a URL says otherwise.
pub fn address(name: &str, value: Option<&String>, listen: SocketAddr) -> Result<String, String> {
    let Some(text) = value else { return Ok(local_url(listen)) };
    url(name, text, &["http://", "https://"])?;
    Ok(text.trim_end_matches('/').to_owned())
}

/// The value of a variable that holds a secret, or of the file that its `_FILE` form names.
pub fn secret(
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
                Err(format!("{name}_FILE names {}, which cannot be read: {e}", file.display()))
            }
        },
    }
}

/// The value is not shown: it may hold a password.
pub fn url(name: &str, value: &str, schemes: &[&str]) -> Result<(), String> {
    if schemes.iter().any(|scheme| value.starts_with(scheme)) {
        return Ok(());
    }
    Err(format!("{name} is not a URL that begins with {}", schemes.join(" or ")))
}

/// How long events are kept where nothing is said, in days.
const VERIFICATIONS_KEPT: Retention =
    Retention { raw: 90, minute: 90, hour: 90, day: 365, month: 1095 };
/// The same of checks of the standalone limiter.
const RATELIMITS_KEPT: Retention =
    Retention { raw: 30, minute: 7, hour: 30, day: 100, month: 1095 };

/// The longest that anything is kept: ten years.
const DAYS_MAX: u32 = 3650;

/// How long events of both kinds are kept.
pub fn parse_retention(
    verifications: Option<&str>,
    ratelimits: Option<&str>,
) -> Result<RetentionSettings, String> {
    Ok(RetentionSettings {
        verifications: retention("KEYWARD_VERIFICATIONS_KEPT", verifications, VERIFICATIONS_KEPT)?,
        ratelimits: retention("KEYWARD_RATELIMITS_KEPT", ratelimits, RATELIMITS_KEPT)?,
    })
}

/// Days by unit, such as `raw=7,hour=30`; units that are not named keep their default.
fn retention(name: &str, value: Option<&str>, default: Retention) -> Result<Retention, String> {
    let mut kept = default;
    for part in value.into_iter().flat_map(|text| text.split(',')) {
        let fault = || {
            format!(
                "{name} has {part:?}: it must be a list such as raw=7,minute=7,hour=30,day=365,month=1095, \
                each with 1 to {DAYS_MAX} days"
            )
        };
        let (unit, days) = part.trim().split_once('=').ok_or_else(fault)?;
        let days = days.parse().ok().filter(|days| (1..=DAYS_MAX).contains(days));
        let days = days.ok_or_else(fault)?;
        match unit {
            "raw" => kept.raw = days,
            "minute" => kept.minute = days,
            "hour" => kept.hour = days,
            "day" => kept.day = days,
            "month" => kept.month = days,
            _ => return Err(fault()),
        }
    }
    Ok(kept)
}

/// What is true or false, and false where nothing is said.
pub fn switch(name: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(format!("{name} is {other:?}: it must be true or false")),
    }
}

/// What is on or off, and off where nothing is said.
pub fn on_or_off(name: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("off") => Ok(false),
        Some("on") => Ok(true),
        Some(other) => Err(format!("{name} is {other:?}: it must be on or off")),
    }
}

pub fn number(
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
