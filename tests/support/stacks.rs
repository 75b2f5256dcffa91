//! Macros that run a test on each stack.

/// Runs a test on both stacks: `both! { async fn key_is_valid(kw) { … } }`.
#[macro_export]
macro_rules! on_both_stacks {
    ($($(#[$meta:meta])* async fn $name:ident($kw:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            async fn run_test($kw: $crate::support::Keyward) $body

            #[tokio::test]
            async fn embedded() {
                run_test($crate::support::Keyward::start($crate::support::Stack::Embedded).await).await;
            }

            #[tokio::test]
            async fn replica() {
                run_test($crate::support::Keyward::start($crate::support::Stack::Replica).await).await;
            }
        }
    )*};
}

/// Like [`both`], with events in the database of either stack, and in ClickHouse with either.
#[macro_export]
macro_rules! on_every_event_store {
    ($($(#[$meta:meta])* async fn $name:ident($kw:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;
            use $crate::support::{Keyward, Stack};

            async fn run_test($kw: Keyward) $body

            #[tokio::test]
            async fn embedded() {
                run_test(Keyward::start(Stack::Embedded).await).await;
            }

            #[tokio::test]
            async fn replica() {
                run_test(Keyward::start(Stack::Replica).await).await;
            }

            #[tokio::test]
            async fn embedded_with_clickhouse() {
                run_test(Keyward::start_with_clickhouse(Stack::Embedded).await).await;
            }

            #[tokio::test]
            async fn replica_with_clickhouse() {
                run_test(Keyward::start_with_clickhouse(Stack::Replica).await).await;
            }
        }
    )*};
}
