//! Rate limits and numbers of a new key.

use axum::body::Body;
use serde_json::json;

use super::random_bytes;
use crate::on_both_stacks;
use crate::support::post;

on_both_stacks! {
    async fn limits_are_told_by_name_in_order(kw) {
        let key = kw
            .create_key(json!({ "ratelimits": [
            { "name": "writes", "limit": 5, "duration": 1000, "autoApply": false },
            { "name": "Zürich 支付", "limit": i64::MAX, "duration": i64::MAX, "autoApply": true },
            { "name": "reads", "limit": 1, "duration": 86_400_000 },
        ] }))
            .await;

        let told = kw.get_key(&key.id).await["ratelimits"].clone();

        let told: Vec<_> = told
            .as_array()
            .unwrap()
            .iter()
            .map(|limit| {
                assert_eq!(limit.as_object().unwrap().len(), 5);
                json!([limit["name"], limit["limit"], limit["duration"], limit["autoApply"]])
            })
            .collect();
        assert_eq!(
            told,
            [
                json!(["Zürich 支付", i64::MAX, i64::MAX, true]),
                json!(["reads", 1, 86_400_000, false]),
                json!(["writes", 5, 1000, false]),
            ]
        );
    }

    async fn of_two_limits_with_one_name_the_last_counts(kw) {
        let key = kw
            .create_key(json!({ "ratelimits": [
            { "name": "requests", "limit": 1, "duration": 1000, "autoApply": true },
            { "name": "Requests", "limit": 2, "duration": 2000 },
            { "name": "requests", "limit": 3, "duration": 3000 },
        ] }))
            .await;

        let told = kw.get_key(&key.id).await["ratelimits"].clone();
        let limits: Vec<_> =
            told.as_array().unwrap().iter().map(|limit| limit["limit"].clone()).collect();
        assert_eq!(limits, [2, 3]);
    }

    async fn a_limit_may_carry_fields_that_nobody_knows(kw) {
        let limit = json!({ "name": "requests", "limit": 1, "duration": 1000, "async": true });

        let key = kw.create_key(json!({ "ratelimits": [limit] })).await;

        assert_eq!(kw.get_key(&key.id).await["ratelimits"][0].get("async"), None);
    }

    async fn a_number_without_fraction_is_a_whole_number(kw) {
        let body = format!(
            r#"{{
                "apiId": "{}", "byteLength": 16.0, "expires": 4102444800000.0,
                "credits": {{
                    "remaining": 1.5e1,
                    "refill": {{ "interval": "monthly", "amount": 1e2, "refillDay": 15.0 }}
                }},
                "ratelimits": [{{ "name": "requests", "limit": 60.0, "duration": 6E4 }}]
            }}"#,
            kw.create_api().await,
        );
        let request =
            post("keys.createKey").header("authorization", format!("Bearer {}", kw.root_key));

        let made = kw.send(request.body(Body::from(body)).unwrap()).await;

        let told = kw.get_key(&made.text_of("keyId")).await;
        assert_eq!(random_bytes(&made.text_of("key")), 16);
        assert_eq!(told["expires"], 4_102_444_800_000_i64);
        assert_eq!(
            told["credits"],
            json!({
                "remaining": 15,
                "refill": { "interval": "monthly", "amount": 100, "refillDay": 15 },
            })
        );
        assert_eq!(told["ratelimits"][0]["limit"], 60);
        assert_eq!(told["ratelimits"][0]["duration"], 60_000);
    }
}
