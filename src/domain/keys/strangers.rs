//! Verification for anybody: how often one address may ask for keys that do not exist.
//!
//! Only what the database would have to be asked about is looked at, so a key that is in use verifies however
//! many others its address has asked for. Each process counts for itself: it is its own database connections
//! that are protected.

use std::net::{IpAddr, Ipv6Addr};

use crate::app::App;
use crate::error::{Error, Result};
use crate::limiter::Window;

const MINUTE_MS: i64 = 60_000;
/// Who has one address of a network of IPv6 has all of this prefix.
const V6_NETWORK: u128 = !0 << 64;

/// Fails when the address has asked for too many lately.
pub fn may_ask(app: &App, address: IpAddr) -> Result<()> {
    let Some(window) = window(app, address) else { return Ok(()) };
    let windows = [window];
    let seen = app.local.look_at(&windows, app.clock.now());
    match seen.windows.iter().zip(&windows).all(|(counted, window)| counted.passed(window)) {
        true => Ok(()),
        false => Err(Error::TooMany("too many keys that do not exist were asked for from here")),
    }
}

/// The address has asked for a key that does not exist.
pub fn asked_in_vain(app: &App, address: IpAddr) {
    if let Some(window) = window(app, address) {
        app.local.count_at(&[window], app.clock.now());
    }
}

fn window(app: &App, address: IpAddr) -> Option<Window> {
    let limit =
        i64::try_from(app.settings.unknown_keys_per_minute).ok().filter(|limit| *limit > 0)?;
    let network = match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & V6_NETWORK).into(),
    };
    Some(Window::new(format!("strangers {network}"), limit, MINUTE_MS, 1))
}
