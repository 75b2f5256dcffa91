//! What Keyward does. Knows nothing of HTTP, of SQL or of Redis.
//!
//! Every function that a caller may not call without a permission asks for it itself, in its first
//! lines, so that each door (v2, the command line, those to come) is guarded alike. A function that
//! writes takes one transaction, records its audit entry in it, commits last, and only then tells
//! the caches.

pub mod admission;
pub mod analytics;
pub mod apis;
pub mod audit;
pub mod caller;
pub mod credits;
pub mod diagnostics;
pub mod health;
pub mod idempotency;
pub mod identities;
pub mod keys;
pub mod last_used;
pub mod migrations;
mod names;
pub mod page;
pub mod permission;
pub mod query;
pub mod ratelimits;
pub mod rbac;
pub mod refill;
pub mod replicas;
pub mod root_keys;
pub mod undo;
pub mod users;
pub mod vault;
