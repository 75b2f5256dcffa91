//! The domain logic of Keyward, independent of HTTP, SQL and Redis.
//!
//! A function that requires a permission checks it itself, in its first lines, so that every
//! interface (v1, v2, dashboard, command line) enforces the same rules. A function that writes uses
//! one transaction, records its audit entry in it, commits last, and invalidates caches only after
//! the commit.

pub mod admission;
pub mod analytics_access;
pub mod apis;
pub mod app;
pub mod audit;
mod batches;
pub mod bounds;
pub mod caller;
pub mod context;
pub mod credits;
pub mod deletion;
pub mod diagnostics;
pub mod first_steps;
pub mod form_results;
pub mod form_submission;
pub mod gateways;
pub mod health;
pub mod homes;
pub mod idempotency;
pub mod idempotency_key;
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
pub mod resolved_key;
pub mod root_keys;
pub mod signing_keys;
pub mod undo;
mod use_flag;
pub mod users;
pub mod vault;
pub mod wording;
pub mod workspaces;
