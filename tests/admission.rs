//! Tests decisions on windows: previews, and the outage policy.

use domain::admission::{self, ConsumeMode, LimitDecision, WindowUsage};
use domain::context::Context;
use foundation::config::Deployment;
use foundation::model::OutagePolicy;
use limiter::{EXACT_MAX, GroupChange, Window, WindowStatus};

use crate::on_both_stacks;
use crate::support::process::free_port;
use crate::support::{Keyward, NOON, Stack};

const MINUTE: i64 = 60_000;

/// Returns a request for a window with a limit of 10.
fn window(context: &Context, cost: i64) -> Window {
    Window::new(context.keyspace.window("key_a", MINUTE, "requests"), 10, MINUTE, cost)
}

/// Returns the decision on one window.
fn decision(is_admitted: bool, is_degraded: bool, remaining: i64) -> LimitDecision {
    let reset_at = NOON.plus_ms(MINUTE);
    let is_exceeded = remaining == 0;
    let used = if is_exceeded { 0 } else { 10 - remaining };
    LimitDecision {
        is_admitted,
        statuses: vec![WindowStatus { used, remaining, reset_at, is_exceeded }],
        is_degraded,
        group_change: GroupChange::None,
    }
}

on_both_stacks! {
    async fn preview_is_the_decision_and_consumes_nothing(kw) {
        let context = &kw.app.context;
        for (cost, is_otherwise_admitted, expected) in [
            (3, true, decision(true, false, 7)),
            (3, false, decision(false, false, 10)),
            (11, true, decision(false, false, 0)),
            (11, false, decision(false, false, 0)),
        ] {
            let windows = [window(context, cost)];
            let found =
                admission::preview(context, &windows, OutagePolicy::Local, is_otherwise_admitted).await.unwrap();
            assert_eq!(found, expected, "{cost} {is_otherwise_admitted}");
        }

        let consumed =
            admission::consume_exact(context, vec![window(context, 3)], OutagePolicy::Local).await.unwrap();
        let usage = admission::peek(context, vec![window(context, 5)]).await.unwrap();

        assert_eq!(consumed, decision(true, false, 7));
        assert_eq!(usage, Some(vec![WindowUsage { used: 3, reset_at: NOON.plus_ms(MINUTE) }]));
    }
}

#[tokio::test]
async fn counter_that_is_full_takes_no_cost_of_others() {
    let kw = Keyward::start(Stack::Replica).await;
    let (context, admission) = (&kw.app.context, &kw.app.admission);
    let window = |name: &str, limit, cost| {
        Window::new(context.keyspace.window("key_a", MINUTE, name), limit, MINUTE, cost)
    };
    // The first request of a counter asks Redis; the second is decided in memory.
    for name in ["full", "other"] {
        for _ in 0..2 {
            let window = window(name, 10, 1);
            let decided = admission::consume_approximate(admission, window, OutagePolicy::Local);
            assert!(decided.await.unwrap().is_admitted);
        }
    }
    let rest = window("full", EXACT_MAX, EXACT_MAX - 1);
    let filled = admission::consume_exact(context, vec![rest], OutagePolicy::Local).await.unwrap();
    assert!(filled.is_admitted && !filled.is_degraded);

    admission::sync_approximate(admission).await;

    let usage = admission::peek(context, vec![window("other", 10, 0)]).await.unwrap().unwrap();
    assert_eq!(usage[0].used, 2);
}

/// Starts a replica whose Redis refuses connections.
async fn without_redis() -> Keyward {
    Keyward::start_with(Stack::Replica, |settings| {
        if let Deployment::Replica { redis_url, .. } = &mut settings.deployment {
            *redis_url = format!("redis://127.0.0.1:{}", free_port());
        }
    })
    .await
}

#[tokio::test]
async fn outage_policy_decides_when_redis_is_unreachable() {
    let kw = without_redis().await;
    let context = &kw.app.context;
    for (policy, cost, expected) in [
        (OutagePolicy::Open, 3, decision(true, true, 7)),
        (OutagePolicy::Closed, 3, decision(false, true, 0)),
        (OutagePolicy::Local, 11, decision(false, true, 0)),
    ] {
        let windows = [window(context, cost)];
        let previewed = admission::preview(context, &windows, policy, true).await.unwrap();
        let otherwise = admission::preview(context, &windows, policy, false).await.unwrap();
        let consumed = admission::consume_exact(context, windows.to_vec(), policy).await.unwrap();

        assert_eq!((&previewed, &consumed), (&expected, &expected), "{policy:?}");
        assert!(!otherwise.is_admitted, "{policy:?}");
    }
    let admitted =
        admission::consume_exact(context, vec![window(context, 3)], OutagePolicy::Local).await;
    assert!(admitted.unwrap().is_admitted);
}

#[tokio::test]
async fn request_without_windows_is_admitted_when_redis_is_unreachable() {
    let kw = without_redis().await;
    let context = &kw.app.context;
    let policy = OutagePolicy::Closed;

    let previewed = admission::preview(context, &[], policy, true).await.unwrap();
    let consumed = admission::consume_exact(context, Vec::new(), policy).await.unwrap();
    let peeked = admission::apply_outage_policy(context, &[], policy, ConsumeMode::Peek, None);

    assert_eq!((previewed.is_admitted, previewed.is_degraded), (true, false));
    assert_eq!((consumed.is_admitted, peeked.is_admitted), (true, false));
    assert_eq!(admission::peek(context, Vec::new()).await.unwrap(), Some(Vec::new()));
    assert_eq!(admission::peek(context, vec![window(context, 0)]).await.unwrap(), None);
}
