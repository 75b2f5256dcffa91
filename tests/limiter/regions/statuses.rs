//! Tests what a rejected request tells of windows that are counted in another region.

use super::*;

#[tokio::test]
async fn cost_above_its_limit_is_rejected_in_the_current_window() {
    let regions = Regions::start();
    // There is no lease yet, then a lease, and then one that has ended.
    for minutes in [0, 1, 6] {
        let now = after(minutes * MINUTE);
        let reply = regions.consume(1, regions.window(1, 10, MINUTE, 11), Some(now)).await;

        assert!(!reply.is_admitted);
        assert_eq!(reply.windows[0].window_number, now.0 / MINUTE, "after {minutes} minutes");
        assert!(regions.admits(1, 10, 1, after(MINUTE)).await);
    }
}

#[tokio::test]
async fn window_does_not_reject_a_request_before_its_home_was_asked() {
    let regions = Regions::start();
    let full = Window::new(regions.keys.window("key_b", MINUTE, "requests"), 0, MINUTE, 1);
    let request = ConsumeRequest::of_windows(vec![full, regions.window(1, 1_000, MINUTE, 1)]);

    let reply = regions.counters[1].consume(&request, Some(NOON)).await.unwrap();

    assert!(!reply.is_admitted);
    let statuses = reply.window_statuses(&request.windows);
    let exceeded: Vec<_> = statuses.iter().map(|status| status.is_exceeded).collect();
    assert_eq!(exceeded, [true, false]);
    assert!(statuses[1].reset_at > NOON, "{statuses:?}");
}
