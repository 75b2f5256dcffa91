//! Tests requests that are admitted although a lease does not suffice: they consume nothing from its window.

use super::*;

#[test]
fn request_that_is_admitted_is_never_decided_again() {
    let admitted = ConsumeReply { is_admitted: true, ..insufficient() };
    let links = ScriptedLinks::new([admitted], [home_reply(20, 0)]);
    let request = ConsumeRequest::of_windows(vec![window(2_000, 0)]);

    assert!(consume_now(&links, &request).expect("a reply").is_admitted);

    assert_eq!(links.take_calls(""), ["consume 1", "decided at once"]);
}

#[test]
fn request_that_is_admitted_after_waiting_has_the_counts_of_its_reply() {
    let admitted = ConsumeReply { is_admitted: true, ..insufficient() };
    let links = ScriptedLinks::new([insufficient(), admitted], [home_reply(20, 0)]);
    let request = ConsumeRequest::of_windows(vec![window(2_000, 5)]);

    let reply = consume_now(&links, &request).expect("a reply");

    assert!(reply.is_admitted);
    assert_eq!(reply.windows, insufficient().windows);
    assert_eq!(links.take_calls("consume"), ["consume 1", "consume 1"]);
}
