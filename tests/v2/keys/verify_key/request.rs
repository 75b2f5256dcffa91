//! The body of a request: which fields it may have, and what they change.

use axum::body::Body;
use serde_json::json;

use super::assert_unknown;
use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, Reply, post};

/// Verifies with a body that is written as it stands.
async fn verify_raw(kw: &Keyward, body: String) -> Reply {
    let request = post("keys.verifyKey").header("authorization", format!("Bearer {}", kw.root_key));
    kw.send(request.body(Body::from(body)).unwrap()).await
}

on_both_stacks! {
    async fn tags_influence_nothing(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 3 } })).await;
        let plain = kw.verify(&key.key).await;

        for tags in [json!([]), json!(["path=/documents", "path=/documents", "\u{0}🦀 \n"])] {
            let reply = kw.verify_with(&key.key, json!({ "tags": tags })).await;

            reply.assert_code("VALID");
            assert_eq!(reply.data().as_object().unwrap().len(), plain.data().as_object().unwrap().len());
        }
    }

    async fn twenty_tags_of_512_characters_are_taken_and_no_more(kw) {
        let key = kw.create_key(json!({})).await;
        let tags =
            |count: usize, length: usize| json!({ "tags": vec!["🦀".repeat(length); count] });

        kw.verify_with(&key.key, tags(20, 512)).await.assert_code("VALID");
        kw.verify_with(&key.key, tags(21, 1)).await.assert_field_error("/properties/tags/maxItems");
        kw.verify_with(&key.key, tags(1, 513)).await.assert_field_error("/properties/tags/items/maxLength");
        kw.verify_with(&key.key, tags(1, 0)).await.assert_field_error("/properties/tags/items/minLength");
    }

    async fn a_migration_id_is_no_matter_to_a_key_that_is_here(kw) {
        let key = kw.create_key(json!({})).await;
        let migration = json!({ "migrationId": "migration_1" });
        kw.verify_with(&key.key, migration.clone()).await.assert_code("VALID");
        assert_unknown(&kw.verify_with("prod_neverIssued", migration).await);
    }

    async fn fields_of_version_1_are_refused(kw) {
        let key = kw.create_key(json!({})).await;
        for (field, value) in [
            ("apiId", json!("api_12345678")),
            ("authorization", json!({ "permissions": "documents.read" })),
            ("remaining", json!({ "cost": 1 })),
            ("ratelimit", json!({ "cost": 1 })),
        ] {
            let reply = kw.verify_with(&key.key, json!({ field: value })).await;

            reply.assert_field_error_about("/additionalProperties", &[field]);
        }
    }

    async fn a_number_without_fraction_is_a_whole_number(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 100 } })).await;
        let body = format!(
            r#"{{
                "key": "{}", "credits": {{ "cost": 15.0 }},
                "ratelimits": [
                    {{ "name": "requests", "limit": 1e1, "duration": 60000.0, "cost": 2.0 }}
                ]
            }}"#,
            key.key,
        );

        verify_raw(&kw, body).await.assert_code("VALID").assert_has(json!({ "credits": 85, "ratelimits.0.remaining": 8 }));
    }

    async fn of_two_fields_with_one_name_the_last_counts(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 100 } })).await;
        let body = format!(
            r#"{{
                "key": "prod_neverIssued", "key": "{}",
                "credits": {{ "cost": 1 }}, "credits": {{ "cost": 2, "cost": 3 }}
            }}"#,
            key.key,
        );

        verify_raw(&kw, body).await.assert_code("VALID").assert_has(json!({ "credits": 97 }));
    }

    async fn nested_objects_may_carry_no_field_that_nobody_knows_but_limits_may(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 9 } })).await;
        let limit = json!({ "name": "requests", "limit": 9, "duration": 60_000, "cost": 1, "async": true });

        kw.verify_with(&key.key, json!({ "ratelimits": [limit] })).await.assert_code("VALID");
        let credits = json!({ "credits": { "cost": 1, "surprise": 1 } });
        let credits = kw.verify_with(&key.key, credits).await;

        credits.assert_field_error_about("/properties/credits/additionalProperties", &["surprise"]);
    }
}
