//! `Retry-After`: when a request that is refused for its number can succeed, if it ever can.

use serde_json::json;

use super::rate_limit::{Client, descriptor, with_hits};
use super::{Gateway, header};
use crate::on_both_stacks;
use crate::support::{Keyward, Stack};

on_both_stacks! {
    async fn refusal_has_no_time_to_wait_when_the_request_takes_more_than_the_limit(kw) {
        for (cost, has_time) in [(2, true), (3, false)] {
            let limit = json!({ "name": format!("each{cost}"), "limit": 2, "duration": 60_000, "cost": cost });
            let one = json!({ "name": format!("each{cost}"), "limit": 2, "duration": 60_000 });
            let name = format!("edge{cost}");
            let rules = json!([{ "path": "/one", "ratelimits": [one] }, { "ratelimits": [limit] }]);
            let mut gateway = Gateway::create(&kw, json!({ "name": name, "rules": rules })).await;
            gateway.target = format!("/gateway/{name}");
            let key = gateway.create_key(json!({})).await.key;
            assert_eq!(gateway.ask_for("GET", "/one", &key).await.status, 200);

            let reply = gateway.ask_for("GET", "/", &key).await;

            assert_eq!((reply.status.as_u16(), &reply.body["code"]), (429, &json!("RATE_LIMITED")));
            assert_eq!(header(&reply, "retry-after"), has_time.then_some("90"), "{cost}");
            assert!(header(&reply, "ratelimit").is_some());
        }
    }

    async fn refusal_has_no_time_to_wait_when_the_request_costs_more_than_a_refill(kw) {
        let rules = json!([{ "path": "/3", "cost": 3 }, { "path": "/4", "cost": 4 }]);
        let gateway = Gateway::create(&kw, json!({ "rules": rules })).await;
        let refill = json!({ "interval": "daily", "amount": 3 });
        let credits = json!({ "remaining": 2, "refill": refill });
        let key = gateway.create_key(json!({ "credits": credits })).await.key;

        // From noon to midnight.
        for (path, seconds) in [("/3", Some("43200")), ("/4", None)] {
            let reply = gateway.ask_for("GET", path, &key).await;
            assert_eq!((reply.status.as_u16(), &reply.body["code"]), (429, &json!("USAGE_EXCEEDED")));
            assert_eq!(header(&reply, "retry-after"), seconds, "{path}");
        }
    }
}

on_both_stacks! {
    async fn request_that_costs_much_of_the_limit_succeeds_after_the_time_to_wait(kw) {
        let limit = |cost| json!([{ "name": "tokens", "limit": 10, "duration": 60_000, "cost": cost }]);
        let rules = json!([{ "path": "/all", "ratelimits": limit(10) }, { "path": "/8", "ratelimits": limit(8) }]);
        let gateway = Gateway::create(&kw, json!({ "rules": rules })).await;
        let key = gateway.create_key(json!({})).await.key;
        assert_eq!(gateway.ask_for("GET", "/all", &key).await.status, 200);

        let reply = gateway.ask_for("GET", "/8", &key).await;

        // After the window, all ten still count; 42 seconds later, only three.
        assert_eq!((reply.status.as_u16(), header(&reply, "retry-after")), (429, Some("102")));
        kw.clock.advance_ms(101_999);
        assert_eq!(gateway.ask_for("GET", "/8", &key).await.status, 429);
        kw.clock.advance_ms(2);
        assert_eq!(gateway.ask_for("GET", "/8", &key).await.status, 200);
    }
}

#[tokio::test]
async fn call_succeeds_after_the_time_to_wait_where_refused_calls_count() {
    let kw = Keyward::start(Stack::Embedded).await;
    let limit = json!({ "limit": 10, "duration": 60_000 });
    let namespace = json!({ "namespace": "edge", "defaultLimit": limit, "countRefused": true });
    let mut client = Client::with_policy(&kw, json!([namespace])).await;
    assert_eq!(client.check(vec![with_hits(descriptor("1"), 5)]).await, (true, vec![5]));
    assert_eq!(client.check(vec![with_hits(descriptor("1"), 15)]).await, (false, vec![0]));

    // After the window, 20 units still count, and 10 of them half a window later. The one that is refused counts, too.
    for (units, seconds) in [(0, "90"), (1, "92")] {
        let sent = vec![with_hits(descriptor("1"), units)];
        let refused = client.send("edge", 0, sent).await.unwrap();
        let headers = refused.response_headers_to_add;
        let wait = headers.iter().find(|header| header.key == "retry-after").unwrap();
        assert_eq!(wait.value, seconds, "{units}");
    }
    kw.clock.advance_ms(92_000);
    assert_eq!(client.check(vec![descriptor("1")]).await, (true, vec![0]));
}
