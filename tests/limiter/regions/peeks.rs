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

#[tokio::test]
async fn peek_tells_what_the_home_has_counted_in_the_last_second() {
    let regions = Regions::start();
    let peek = async |ms| {
        let reply = regions.consume(1, regions.window(1, 100, MINUTE, 0), Some(after(ms))).await;
        assert!(reply.is_admitted);
        (reply.windows[0].effective_count, reply.windows[0].window_number)
    };
    let number = NOON.0 / MINUTE;
    assert_eq!(peek(0).await, (0, number));
    assert!(regions.admits(0, 100, 40, NOON).await);

    assert_eq!(peek(1_000).await, (0, number), "as it was a second ago");
    assert_eq!(peek(1_001).await, (40, number));
    // The lease has ended.
    assert_eq!(peek(2 * MINUTE).await, (0, number + 2));
}
