//! What a key is asked to be allowed.

use serde_json::{Value, json};

use super::{issued, update, verify_raw};
use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::json::Fields as _;
use crate::support::seed::IssuedKey;

/// A key that has a and b itself, and b and c through a role.
async fn key_with_a_b_and_c(kw: &Keyward) -> IssuedKey {
    kw.create_role("editor", ["b", "c"]).await;
    kw.create_permission("a").await;
    issued(kw, json!({ "roles": ["editor"], "permissions": ["a", "b"] })).await
}

fn asked(permissions: &Value) -> Value {
    json!({ "authorization": { "permissions": permissions } })
}

/// `a`, so many lists deep.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!("a"), |inner, _| json!({ "and": [inner] }))
}

on_both_stacks! {
    async fn a_query_holds_for_what_the_key_has_itself_or_through_a_role(kw) {
        let key = key_with_a_b_and_c(&kw).await;

        for (query, holds) in [
            (json!("a"), true),
            (json!("b"), true),
            (json!("c"), true),
            (json!("d"), false),
            (json!({ "and": ["a"] }), true),
            (json!({ "and": ["a", "b", "c"] }), true),
            (json!({ "and": ["a", "d"] }), false),
            (json!({ "or": ["d"] }), false),
            (json!({ "or": ["d", "c"] }), true),
            (json!({ "or": ["d", "e"] }), false),
            (json!({ "or": ["d", { "and": ["a", "c"] }] }), true),
            (json!({ "or": ["d", { "and": ["a", "e"] }] }), false),
            (json!({ "and": ["a", { "or": ["d", "b"] }, { "or": ["c", "e"] }] }), true),
            (json!({ "and": ["a", { "or": ["d", { "and": ["b", "e"] }] }] }), false),
            (json!({ "and": [{ "and": [{ "or": [{ "or": ["a"] }] }] }] }), true),
        ] {
            let reply = kw.verify_v1(&key.key, asked(&query)).await;

            assert_eq!(reply.v1_body()["valid"], holds, "{query}: {}", reply.text);
            reply.assert_v1_code(if holds { "VALID" } else { "INSUFFICIENT_PERMISSIONS" });
        }
    }

    async fn names_are_compared_letter_by_letter_and_nothing_in_them_is_a_word(kw) {
        for slug in ["docs.*", "Docs.Read"] {
            kw.create_permission(slug).await;
        }
        let key = issued(&kw, json!({ "permissions": ["docs.*", "Docs.Read"] })).await;

        for (query, holds) in [
            ("docs.*", true),
            ("docs.read", false),
            ("Docs.Read", true),
            ("*", false),
            ("docs", false),
            ("docs.* ", false),
            // Such is the grammar of version 2.
            ("docs.* AND Docs.Read", false),
            ("docs.* OR Docs.Read", false),
            ("(docs.*)", false),
        ] {
            let reply = kw.verify_v1(&key.key, asked(&json!(query))).await;

            assert_eq!(reply.v1_body()["valid"], holds, "{query}: {}", reply.text);
        }
    }

    async fn who_asks_for_nothing_needs_nothing(kw) {
        let key = issued(&kw, json!({})).await;
        for nothing in [json!({}), json!({ "authorization": {} }), asked(&Value::Null), asked(&json!(""))] {
            kw.verify_v1(&key.key, nothing).await.assert_v1_code("VALID");
        }
    }

    async fn of_and_beside_or_the_first_counts(kw) {
        let key = key_with_a_b_and_c(&kw).await;

        for (query, code) in [
            (json!({ "and": ["a"], "or": ["d"] }), "VALID"),
            (json!({ "and": ["d"], "or": ["a"] }), "INSUFFICIENT_PERMISSIONS"),
            (json!({ "or": ["d", "a"], "surprise": ["e"] }), "VALID"),
        ] {
            kw.verify_v1(&key.key, asked(&query)).await.assert_v1_code(code);
        }
    }

    async fn a_query_that_is_none_is_refused_by_its_field(kw) {
        let key = key_with_a_b_and_c(&kw).await;

        for query in [
            json!({}),
            json!([]),
            json!(["a"]),
            json!(5),
            json!(true),
            json!({ "and": [] }),
            json!({ "or": [] }),
            json!({ "and": "a" }),
            json!({ "or": { "and": ["a"] } }),
            json!({ "and": null }),
            json!({ "surprise": ["a"] }),
            json!({ "and": ["a", null] }),
            json!({ "and": ["a", 5] }),
            json!({ "or": ["a", ["b"]] }),
            json!({ "or": ["a", {}] }),
            json!({ "or": ["a", { "and": [] }] }),
            json!({ "AND": ["a"] }),
        ] {
            let reply = kw.verify_v1(&key.key, asked(&query)).await;

            let message = reply.assert_v1_error(400, "BAD_REQUEST");
            let said = "authorization.permissions: Invalid input";
            assert!(message.starts_with(said), "{query}: {message}");
        }
    }

    async fn a_query_may_be_as_deep_as_a_body_and_no_deeper(kw) {
        let key = key_with_a_b_and_c(&kw).await;

        // Each level is an object and a list; two more objects are around them, and 64 may be.
        kw.verify_v1(&key.key, asked(&nested(31))).await.assert_v1_code("VALID");
        for levels in [32, 64, 5_000] {
            // Written by hand: the test's own stack is not to decide.
            let (open, close) = (r#"{"and":["#.repeat(levels), "]}".repeat(levels));
            let body = format!(r#"{{"key":"{}","authorization":{{"permissions":{open}"a"{close}}}}}"#, key.key);
            verify_raw(&kw, body).await.assert_v1_error_about(400, "BAD_REQUEST", &["nested"]);
        }
    }

    async fn a_query_may_be_wide(kw) {
        let key = key_with_a_b_and_c(&kw).await;
        let mut parts: Vec<_> = (0..2_000).map(|n| json!(format!("none.{n}"))).collect();
        kw.verify_v1(&key.key, asked(&json!({ "or": parts }))).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");
        parts.push(json!("c"));
        kw.verify_v1(&key.key, asked(&json!({ "or": parts }))).await.assert_v1_code("VALID");
    }

    async fn permissions_and_roles_are_told_whether_or_not_they_are_asked_for(kw) {
        let key = key_with_a_b_and_c(&kw).await;

        let unasked = kw.verify_v1(&key.key, json!({})).await;
        let asked_for = kw.verify_v1(&key.key, asked(&json!("a"))).await;
        let missed = kw.verify_v1(&key.key, asked(&json!("z"))).await;

        for reply in [unasked, asked_for, missed] {
            reply.v1_body().assert_has(json!({ "permissions": ["a", "b", "c"], "roles": ["editor"] }));
        }
    }

    async fn a_change_of_permissions_counts_at_once(kw) {
        let key = key_with_a_b_and_c(&kw).await;
        kw.verify_v1(&key.key, asked(&json!("a"))).await.assert_v1_code("VALID");
        update(&kw, &key, json!({ "permissions": [{ "name": "c" }], "roles": [] })).await;
        kw.verify_v1(&key.key, asked(&json!("a"))).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");
        kw.verify_v1(&key.key, asked(&json!("c"))).await.assert_v1_code("VALID");
    }
}
