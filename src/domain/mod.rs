//! What Keyward does. Knows nothing of HTTP, of SQL or of Redis.
//!
//! Every function that a caller may not call without a permission asks for it itself, in its first
//! lines, so that each door (v2, the command line, those to come) is guarded alike. A function that
//! writes takes one transaction, records its audit entry in it, commits last, and only then tells
//! the caches.

pub mod analytics;
pub mod apis;
pub mod audit;
pub mod caller;
pub mod checkup;
pub mod counting;
pub mod credits;
pub mod health;
pub mod identities;
pub mod keys;
pub mod migrations;
mod names;
pub mod once;
pub mod page;
pub mod people;
pub mod permission;
pub mod query;
pub mod ratelimits;
pub mod rbac;
pub mod refill;
pub mod replicas;
pub mod root_keys;
pub mod undo;
pub mod uses;
pub mod vault;
