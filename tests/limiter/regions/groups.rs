//! Tests groups of ad-hoc counters whose windows are counted in another region: the home bounds how many are live.

use limiter::{CounterGroup, GroupChange};

use super::*;

#[tokio::test]
async fn group_is_bounded_when_its_home_is_another_region() {
    let regions = Regions::start();
    let group = Arc::new(CounterGroup {
        name: regions.keys.group("key_a"),
        workspace: "ws_default".into(),
        live_max: 1,
    });
    let mut outcomes = Vec::new();

    for duration_ms in [MINUTE, MINUTE, 2 * MINUTE, 2 * MINUTE, MINUTE] {
        let window = regions.window(1, 1_000, duration_ms, 1).with_group(group.clone());
        let reply = regions.consume(1, window, Some(NOON)).await;
        outcomes.push((reply.is_admitted, reply.group_change));
    }

    let (grown, none, full) =
        ((true, GroupChange::Grown), (true, GroupChange::None), (false, GroupChange::Full));
    assert_eq!(outcomes, [grown, none, full, full, none]);
}
