//! What may be asked, and by whom.

use axum::body::Body;
use axum::http::{HeaderValue, Request};
use serde_json::{Value, json};

use super::{issued, verify_raw};
use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, Reply};

/// What is said of a request that is wrong.
async fn fault(kw: &Keyward, key: &str, fields: Value) -> String {
    kw.verify_v1(key, fields).await.assert_v1_error(400, "BAD_REQUEST")
}

async fn verify_as(kw: &Keyward, authorization: HeaderValue, key: &str) -> Reply {
    let request = Request::post("/v1/keys.verifyKey")
        .header("content-type", "application/json")
        .header("authorization", authorization)
        .body(Body::from(json!({ "key": key }).to_string()))
        .unwrap();
    kw.send(request).await
}

on_both_stacks! {
    async fn nobody_needs_a_root_key_and_none_is_read(kw) {
        let key = issued(&kw, json!({})).await;
        let (stranger, powerless) = (kw.create_other_workspace().await, kw.create_root_key([]).await);

        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        for header in [
            "", "Bearer", "Bearer public", "Bearer two words", "Basic dXNlcjpwYXNz", "nobody",
            &*format!("Bearer {}", kw.root_key), &*format!("Bearer {powerless}"),
            &*format!("Bearer {stranger}"), &*format!("Bearer {}", key.key),
        ] {
            verify_as(&kw, HeaderValue::from_str(header).unwrap(), &key.key).await.assert_v1_code("VALID");
        }
        let no_text = HeaderValue::from_bytes(b"Bearer \xff\xfe").unwrap();
        verify_as(&kw, no_text, &key.key).await.assert_v1_code("VALID");
    }

    async fn a_key_must_be_given(kw) {
        assert_eq!(verify_raw(&kw, "{}".into()).await.assert_v1_error(400, "BAD_REQUEST"), "key: Required");
        assert_eq!(fault(&kw, "", json!({})).await, "key: String must contain at least 1 character(s)");
        assert_eq!(
            verify_raw(&kw, r#"{"key":5}"#.into()).await.assert_v1_error(400, "BAD_REQUEST"),
            "key: Expected string, received number",
        );

        kw.verify_v1("x", json!({})).await.assert_v1_code("NOT_FOUND");
    }

    async fn verify_returns_not_found_when_key_is_longer_than_any_key(kw) {
        for length in [512, 513, 65_000] {
            kw.verify_v1(&"k".repeat(length), json!({})).await.assert_v1_code("NOT_FOUND");
        }
    }

    async fn ten_tags_of_128_characters_are_taken_and_no_more(kw) {
        let key = issued(&kw, json!({ "remaining": 9 })).await;
        let tags =
            |count: usize, length: usize| json!({ "tags": vec!["🦀".repeat(length); count] });

        let (none, all) = (tags(0, 1), tags(10, 128));
        kw.verify_v1(&key.key, none).await.assert_v1_code("VALID");
        kw.verify_v1(&key.key, all).await.assert_v1_code("VALID");
        assert_eq!(fault(&kw, &key.key, tags(11, 1)).await, "tags: Array must contain at most 10 element(s)");
        assert_eq!(fault(&kw, &key.key, tags(2, 129)).await, "tags.0: String must contain at most 128 character(s)");
        assert_eq!(fault(&kw, &key.key, tags(1, 0)).await, "tags.0: String must contain at least 1 character(s)");

        assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID")["remaining"], 6);
    }

    async fn tags_influence_nothing(kw) {
        let key = issued(&kw, json!({})).await;
        let told = |reply: Reply| {
            let mut body = reply.assert_v1_code("VALID").clone();
            body["requestId"] = Value::Null;
            body
        };

        let plain = told(kw.verify_v1(&key.key, json!({})).await);
        let tags = json!({ "tags": ["path=/documents", "path=/documents", "\u{0}🦀 \n"] });
        assert_eq!(plain, told(kw.verify_v1(&key.key, tags).await));
    }

    async fn null_stands_for_nothing_that_may_be_left_out(kw) {
        let key = issued(&kw, json!({})).await;

        for (fields, said) in [
            (json!({ "apiId": null }), "apiId: Expected string, received null"),
            (json!({ "tags": null }), "tags: Expected array, received null"),
            (json!({ "authorization": null }), "authorization: Expected object, received null"),
            (json!({ "remaining": null }), "remaining: Expected object, received null"),
            (json!({ "remaining": { "cost": null } }), "remaining.cost: Expected number, received null"),
            (json!({ "ratelimit": null }), "ratelimit: Expected object, received null"),
            (json!({ "ratelimits": null }), "ratelimits: Expected array, received null"),
            (json!({ "ratelimits": [{ "name": "default", "limit": null, "duration": 1 }] }),
                "ratelimits.0.limit: Expected number, received null"),
        ] {
            assert_eq!(fault(&kw, &key.key, fields).await, said);
        }
    }

    async fn fields_that_nobody_knows_are_passed_over_wherever_they_stand(kw) {
        let key = issued(&kw, json!({ "remaining": 9 })).await;

        let reply = kw.verify_v1(&key.key, json!({
            "surprise": 1,
            "authorization": { "surprise": 1 },
            "remaining": { "cost": 2, "surprise": null },
            "ratelimit": { "surprise": {} },
            "ratelimits": [{ "name": "x", "limit": 5, "duration": 60_000, "async": true }],
        })).await;

        reply.assert_v1_code("VALID").assert_has(json!({ "remaining": 7, "ratelimit.remaining": 4 }));
    }

    async fn a_number_without_fraction_is_a_whole_number(kw) {
        let key = issued(&kw, json!({ "remaining": 100 })).await;
        let body = format!(
            r#"{{
                "key": "{}", "remaining": {{ "cost": 15.0 }},
                "ratelimits": [{{ "name": "x", "limit": 1e1, "duration": 60000.0, "cost": 2.0 }}]
            }}"#,
            key.key,
        );

        verify_raw(&kw, body).await.assert_v1_code("VALID").assert_has(json!({ "remaining": 85, "ratelimit.remaining": 8 }));
        let broken = fault(&kw, &key.key, json!({ "remaining": { "cost": 1.5 } })).await;
        let past = format!(r#"{{ "key": "{}", "remaining": {{ "cost": 9223372036854775808 }} }}"#, key.key);
        verify_raw(&kw, past).await.assert_v1_error(400, "BAD_REQUEST");

        assert_eq!(broken, "remaining.cost: Expected integer, received float");
    }

    async fn of_two_fields_with_one_name_the_last_counts(kw) {
        let key = issued(&kw, json!({ "remaining": 9 })).await;
        let body = format!(r#"{{ "key": "nobody", "key": "{}", "remaining": {{ "cost": 1, "cost": 3 }} }}"#, key.key);
        assert_eq!(verify_raw(&kw, body).await.assert_v1_code("VALID")["remaining"], 6);
    }

    async fn verifying_leaves_no_trace_in_the_audit_log(kw) {
        let key = issued(&kw, json!({ "remaining": 1 })).await;
        let before = kw.count_audit_entries().await;

        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("USAGE_EXCEEDED");
        kw.verify_v1("nobody", json!({})).await.assert_v1_code("NOT_FOUND");

        assert_eq!(kw.count_audit_entries().await, before);
    }
}
