//! Keyward issues API keys, verifies them and counts their use: rate limits, credits, permissions and identities.
//!
//! This package is the program. Its layers use only those below them:
//!
//! | layer | contents |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`http`] | the server: routes, connections, draining |
//! | crate `api` | the operations of the v1 and v2 API |
//! | crate `dashboard` | the pages of the dashboard |
//! | crate `request` | the parts of a request that every interface reads |
//! | crate `domain` | what Keyward does; `domain::app` composes its services |
//! | crate `analytics` | analytics events |
//! | crates `store`, `limiter`, `oidc`, `analytics_sql` | durable data, counters, single sign-on, analytics queries |
//! | crate `foundation` | ids, time, secrets, errors, settings, the model |
//!
//! [`background`] keeps the caches of a replica fresh; [`analytics_worker`] writes, aggregates and delivers events.

pub mod analytics_worker;
pub mod background;
pub mod cli;
pub mod http;
