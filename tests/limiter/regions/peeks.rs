//! Tests requests that only read a window of another region, alone or beside windows that they consume from.

use super::*;

#[tokio::test]
async fn request_with_a_peek_is_executed_once() {
    let regions = Regions::start();
    let name = regions.keys.window("key_b", MINUTE, "requests");
    let here = |cost| Window::new(name.clone(), 10, MINUTE, cost);
    let request = ConsumeRequest::of_windows(vec![here(1), regions.window(1, 1_000, MINUTE, 0)]);

    let reply = regions.counters[1].consume(&request, Some(NOON)).await.unwrap();

    assert!(reply.is_admitted);
    assert_eq!(regions.consume(1, here(0), Some(NOON)).await.windows[0].effective_count, 1);
}
