//! Windows of rate limits: when they end, slide and begin anew.

use serde_json::json;

use super::limits::{MINUTE, limit, limited_key};
use crate::on_both_stacks;
use crate::support::NOON;

on_both_stacks! {
    async fn the_end_of_the_current_window_is_told(kw) {
        let key = limited_key(&kw, 10, true).await;

        let mut resets = Vec::new();
        for ms in [0, 1, MINUTE - 2, 1, MINUTE] {
            kw.clock.advance_ms(ms);
            let reply = kw.verify(&key.key).await;
            resets.push(reply.data()["ratelimits"][0]["reset"].as_i64().unwrap() - NOON.0);
        }

        assert_eq!(resets, [MINUTE, MINUTE, MINUTE, 2 * MINUTE, 3 * MINUTE]);
    }

    async fn the_window_slides(kw) {
        let key = limited_key(&kw, 10, true).await;
        kw.verify_with(&key.key, limit("requests", 10)).await.assert_code("VALID");

        // What was taken in the window before counts by the share that is still covered.
        let mut codes = Vec::new();
        for ms in [MINUTE - 1, 1, 1, 5_999, 1] {
            kw.clock.advance_ms(ms);
            codes.push(kw.verify(&key.key).await.text_of("code"));
        }
        kw.clock.advance_ms(MINUTE - 6_001 - 1);
        let late = kw.verify_with(&key.key, limit("requests", 0)).await;

        assert_eq!(codes, ["RATE_LIMITED", "RATE_LIMITED", "VALID", "RATE_LIMITED", "VALID"]);
        assert_eq!(late.data()["ratelimits"][0]["remaining"], 8);
    }

    async fn after_two_windows_nothing_counts_any_more(kw) {
        let key = limited_key(&kw, 10, true).await;
        kw.verify_with(&key.key, limit("requests", 10)).await.assert_code("VALID");

        kw.clock.advance_ms(2 * MINUTE);

        let reply = kw.verify_with(&key.key, limit("requests", 10)).await;
        reply.assert_code("VALID");
    }

    async fn a_changed_limit_keeps_the_count_and_a_changed_duration_does_not(kw) {
        let key = limited_key(&kw, 10, true).await;
        kw.verify_with(&key.key, limit("requests", 5)).await.assert_code("VALID");
        let change = |limit: i64, duration: i64| {
            json!({ "ratelimits": [
            { "name": "requests", "limit": limit, "duration": duration, "autoApply": true },
        ] })
        };

        kw.update_key(&key.id, change(5, MINUTE)).await.data();
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");
        kw.update_key(&key.id, change(7, MINUTE)).await.data();
        let raised = kw.verify(&key.key).await;
        kw.update_key(&key.id, change(5, 2 * MINUTE)).await.data();
        let longer = kw.verify(&key.key).await;

        assert_eq!(raised.data()["ratelimits"][0]["remaining"], 1);
        assert_eq!(longer.data()["ratelimits"][0]["remaining"], 4);
    }

    async fn each_name_and_each_duration_counts_for_itself(kw) {
        let key = kw.create_key(json!({})).await;
        let item = |name: &str, duration: i64| {
            json!({ "ratelimits": [
            { "name": name, "limit": 1, "duration": duration },
        ] })
        };

        for (name, duration) in [
            ("requests", MINUTE),
            ("Requests", MINUTE),
            ("requests", 2 * MINUTE),
            ("requests:60000", MINUTE),
        ] {
            kw.verify_with(&key.key, item(name, duration)).await.assert_code("VALID");
            kw.verify_with(&key.key, item(name, duration)).await.assert_code("RATE_LIMITED");
        }
    }
}
