//! What a key is asked to be allowed.

use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::json::Fields as _;
use crate::support::seed::IssuedKey;

/// A key that has a and b itself, and b and c through a role.
async fn key_with_a_b_and_c(kw: &Keyward) -> IssuedKey {
    kw.create_role("editor", ["b", "c"]).await;
    kw.create_permission("a").await;
    kw.create_key(json!({ "roles": ["editor"], "permissions": ["a", "b"] })).await
}

on_both_stacks! {
    async fn a_query_holds_for_what_the_key_has_itself_or_through_a_role(kw) {
        let key = key_with_a_b_and_c(&kw).await;

        for (query, holds) in [
            ("a", true),
            ("b", true),
            ("c", true),
            ("d", false),
            ("a AND c", true),
            ("a AND d", false),
            ("d OR c", true),
            ("d OR e", false),
            ("a OR d AND e", true),
            ("(a OR d) AND e", false),
            ("d AND e OR c", true),
            ("d AND (e OR c)", false),
            ("a AND (d OR (e OR (b AND c)))", true),
            ("((((((((((a))))))))))", true),
            ("a and b Or d", true),
            ("aNd_d OR a", true),
            (" \t\r\na\n AND\tb ", true),
            ("(a)AND(b)", true),
        ] {
            let reply = kw.verify_with(&key.key, json!({ "permissions": query })).await;

            assert_eq!(reply.data()["valid"], holds, "{query}: {}", reply.text);
            reply.assert_code(if holds { "VALID" } else { "INSUFFICIENT_PERMISSIONS" });
        }
    }

    async fn names_are_compared_letter_by_letter(kw) {
        for slug in ["docs.*", "Docs.Read", "a:b-c_d.e", "and_more"] {
            kw.create_permission(slug).await;
        }
        let key = kw.create_key(json!({ "permissions": ["docs.*", "Docs.Read", "a:b-c_d.e", "and_more"] })).await;

        for (query, holds) in [
            ("docs.*", true),
            ("docs.read", false),
            ("Docs.Read", true),
            ("docs.Read", false),
            ("Docs.*", false),
            ("*", false),
            ("Docs", false),
            ("a:b-c_d.e", true),
            ("a:b-c_d", false),
            ("a/b", false),
            ("and_more", true),
        ] {
            let reply = kw.verify_with(&key.key, json!({ "permissions": query })).await;

            assert_eq!(reply.data()["valid"], holds, "{query}: {}", reply.text);
        }
    }

    async fn who_asks_for_nothing_needs_nothing(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn permissions_and_roles_are_told_whether_or_not_they_are_asked_for(kw) {
        let key = key_with_a_b_and_c(&kw).await;
        let unasked = kw.verify(&key.key).await;
        assert_eq!(unasked.data(), kw.verify_with(&key.key, json!({ "permissions": "a" })).await.data());
        unasked.data().assert_has(json!({ "permissions": ["a", "b", "c"], "roles": ["editor"] }));
    }

    async fn a_query_that_is_none_is_refused_with_the_place_of_the_fault(kw) {
        let key = kw.create_key(json!({})).await;

        for (query, at) in [
            (" ", 1),
            ("a AND", 5),
            ("AND a", 0),
            ("a OR OR b", 5),
            ("(a AND b", 8),
            ("a)", 1),
            ("a AND ()", 7),
            ("a b", 2),
            ("a (b)", 2),
            ("NOT a", 4),
            ("a && b", 2),
            ("\"a\"", 0),
            ("a AND ü", 6),
            ("a\u{0}", 1),
        ] {
            let reply = kw.verify_with(&key.key, json!({ "permissions": query })).await;

            let error = reply.assert_error(400, "permissions_query_syntax_error");
            error.assert_has(json!({ "title": "Bad Request", "errors": Value::Array(Vec::new()) }));
            let detail = error["detail"].as_str().unwrap();
            assert!(detail.contains(&format!("byte {at})")), "{query:?}: {detail}");
        }
    }

    async fn a_query_that_is_refused_spends_nothing(kw) {
        let key = kw.create_key(json!({
            "credits": { "remaining": 1 },
            "ratelimits": [{ "name": "requests", "limit": 1, "duration": 60_000, "autoApply": true }],
        })).await;

        kw.verify_with(&key.key, json!({ "permissions": "(" })).await.assert_error(400, "permissions_query_syntax_error");
        let missing = kw.verify_with(&key.key, json!({ "permissions": "a" })).await;

        missing.assert_code("INSUFFICIENT_PERMISSIONS").assert_has(json!({ "credits": 1 }));
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn a_query_of_a_thousand_characters_is_no_danger(kw) {
        kw.create_permission("a").await;
        let key = kw.create_key(json!({ "permissions": ["a"] })).await;

        let deep = format!("{}aa OR a{}", "(".repeat(496), ")".repeat(496));
        let wide = format!("{}a", "x OR ".repeat(199));
        let never = "(".repeat(1000);

        kw.verify_with(&key.key, json!({ "permissions": deep })).await.assert_code("VALID");
        kw.verify_with(&key.key, json!({ "permissions": wide })).await.assert_code("VALID");
        kw.verify_with(&key.key, json!({ "permissions": never })).await.assert_error(400, "permissions_query_syntax_error");
    }
}
