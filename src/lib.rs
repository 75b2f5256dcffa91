//! Keyward issues API keys, verifies them and counts.
//!
//! The layers, each of which knows only those below it:
//!
//! | layer | what it is for |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`http`] | the server: paths, connections, draining |
//! | [`rpc`] | operations as they are called over HTTP |
//! | [`dashboard`] | pages for people |
//! | [`request`] | what every door reads of a request |
//! | [`domain`] | what Keyward does |
//! | [`store`], [`limiter`], [`issuer`] | what lasts, what is counted, and who says who somebody is |
//! | [`model`], [`id`], [`clock`], [`secret`], [`error`], [`config`], [`descriptors`], [`metrics`], [`traces`], [`sabotage`] | the alphabet that all share |
//!
//! [`app`] is the bag that is handed down; [`stream`] keeps a replica's caches true; [`recorder`] puts away what
//! happened.

pub mod analytics_worker;
pub mod app;
pub mod background;
pub mod cli;
pub mod dashboard;
pub mod domain;
pub mod http;
pub mod request;
pub mod rpc;
