//! What every layer of Keyward shares and what depends on no layer.
//!
//! | module | contents |
//! |---|---|
//! | [`clock`] | the time, as unix milliseconds; a clock that tests can set |
//! | `column` | the macro [`read_from_column`] |
//! | [`config`] | the settings of the server, from the command line and from `KEYWARD_` variables |
//! | [`descriptors`] | the limit on open files |
//! | [`distance`] | how far away a server is, and how long a call to it may take |
//! | [`error`] | the one error type: codes, messages and what a caller may do about them |
//! | [`fault_injection`] | safeguards that a debug build can disable, so that tests notice their absence |
//! | [`id`] | typed ids with their prefixes |
//! | [`metrics`] | the metrics of `/metrics` |
//! | [`model`] | keys, identities, permissions, credits and limits as plain data |
//! | [`secret`] | key material: plaintexts that are never logged, and their hashes |
//! | [`tls`] | the settings of TLS clients |
//! | [`traces`] | spans, exported through OpenTelemetry |
//! | [`vault`] | encryption of recoverable keys with data keys and master keys |
//!
//! Conversions of database and Redis errors live in [`error`], because `?` needs them next to the type.

pub mod clock;
mod column;
pub mod config;
pub mod descriptors;
pub mod distance;
pub mod error;
pub mod fault_injection;
pub mod home;
pub mod id;
pub mod metrics;
pub mod model;
pub mod secret;
pub mod tls;
pub mod traces;
pub mod vault;
