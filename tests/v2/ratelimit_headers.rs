//! Tests the headers that describe rate limits.

use foundation::config::RatelimitHeaders;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Reply};

const NAMES: [&str; 5] = [
    "ratelimit-policy",
    "ratelimit",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

async fn start_with(kw: &Keyward, format: RatelimitHeaders) -> Keyward {
    Keyward::start_with(kw.stack, |settings| settings.ratelimit_headers = format).await
}

/// Returns the rate-limit headers of a response, by name and value.
fn headers_of(reply: &Reply) -> Vec<(&str, &str)> {
    reply.data();
    let header = |name: &'static str| Some((name, reply.headers.get(name)?.to_str().unwrap()));
    NAMES.into_iter().filter_map(header).collect()
}

fn draft<'a>(policies: &'a str, statuses: &'a str) -> [(&'static str, &'a str); 2] {
    [("ratelimit-policy", policies), ("ratelimit", statuses)]
}

fn limits() -> Value {
    json!([
        { "name": "burst", "limit": 2, "duration": 60_000, "autoApply": true },
        { "name": "täglich", "limit": 100, "duration": 86_400_000, "autoApply": true },
    ])
}

on_both_stacks! {
    async fn draft_headers_describe_the_limits_of_a_verification(kw) {
        let kw = start_with(&kw, RatelimitHeaders::Draft).await;
        let key = kw.create_key(json!({ "ratelimits": limits() })).await;
        let policies = r#""burst";q=2;w=60, "t%C3%A4glich";q=100;w=86400"#;
        kw.clock.advance_ms(1);

        for (code, statuses) in [
            ("VALID", r#""burst";r=1;t=60, "t%C3%A4glich";r=99;t=43200"#),
            ("VALID", r#""burst";r=0;t=60, "t%C3%A4glich";r=98;t=43200"#),
            ("RATE_LIMITED", r#""burst";r=0;t=60, "t%C3%A4glich";r=98;t=43200"#),
        ] {
            let reply = kw.verify(&key.key).await;
            reply.assert_code(code);
            assert_eq!(headers_of(&reply), draft(policies, statuses));
        }
    }

    async fn draft_headers_describe_ad_hoc_limits_of_a_verification(kw) {
        let kw = start_with(&kw, RatelimitHeaders::Draft).await;
        let key = kw.create_key(json!({})).await;

        let limit = json!({ "name": "a \"b\"", "limit": 10, "duration": 1_500, "cost": 4 });
        let reply = kw.verify_with(&key.key, json!({ "ratelimits": [limit] })).await;

        let policies = r#""a \"b\"";q=10;w=2"#;
        assert_eq!(headers_of(&reply)[0], ("ratelimit-policy", policies));
        assert!(headers_of(&reply)[1].1.starts_with(r#""a \"b\"";r=6;t="#), "{:?}", reply.headers);
    }

    async fn draft_headers_describe_the_limit_of_a_check(kw) {
        let kw = start_with(&kw, RatelimitHeaders::Draft).await;
        let set = json!({
            "namespace": "emails", "identifier": "vip", "limit": 50, "duration": 120_000,
        });
        kw.check_limit("emails", "ada", json!({})).await.data();
        kw.v2("ratelimit.setOverride", set).await.data();

        let plain = kw.check_limit("emails", "ada", json!({ "cost": 9 })).await;
        let refused = kw.check_limit("emails", "ada", json!({ "cost": 3 })).await;
        let overridden = kw.check_limit("emails", "vip", json!({})).await;

        let policy = r#""emails";q=10;w=60"#;
        assert_eq!(headers_of(&plain), draft(policy, r#""emails";r=0;t=60"#));
        assert_eq!(refused.data()["success"], false);
        assert_eq!(headers_of(&refused), draft(policy, r#""emails";r=0;t=60"#));
        let (policy, status) = (r#""emails";q=50;w=120"#, r#""emails";r=49;t=120"#);
        assert_eq!(headers_of(&overridden), draft(policy, status));
    }

    async fn legacy_headers_describe_the_tightest_limit(kw) {
        let kw = start_with(&kw, RatelimitHeaders::Legacy).await;
        let key = kw.create_key(json!({ "ratelimits": limits() })).await;

        let verified = kw.verify(&key.key).await;
        let checked = kw.check_limit("emails", "ada", json!({})).await;

        let reset = (NOON.0 / 1000 + 60).to_string();
        let legacy = |limit: &'static str, remaining: &'static str| {
            [
                ("x-ratelimit-limit", limit),
                ("x-ratelimit-remaining", remaining),
                ("x-ratelimit-reset", &*reset),
            ]
        };
        assert_eq!(headers_of(&verified), legacy("2", "1"));
        assert_eq!(headers_of(&checked), legacy("10", "9"));
    }

    async fn there_are_no_headers_by_default_or_without_limits(kw) {
        let key = kw.create_key(json!({ "ratelimits": limits() })).await;
        let draft = start_with(&kw, RatelimitHeaders::Draft).await;
        let plain = draft.create_key(json!({})).await;
        let disabled =
            draft.create_key(json!({ "ratelimits": limits(), "enabled": false })).await;

        assert_eq!(headers_of(&kw.verify(&key.key).await), []);
        assert_eq!(headers_of(&kw.check_limit("emails", "ada", json!({})).await), []);
        assert_eq!(headers_of(&draft.verify(&plain.key).await), []);
        assert_eq!(headers_of(&draft.verify(&disabled.key).await), []);
        assert_eq!(headers_of(&draft.verify("nobody_knows_this_key").await), []);
    }

    async fn v1_has_no_headers(kw) {
        let kw = start_with(&kw, RatelimitHeaders::Draft).await;
        let key = kw.create_key(json!({ "ratelimits": limits() })).await;

        let reply = kw.verify_v1(&key.key, json!({})).await;

        reply.assert_v1_code("VALID");
        assert!(NAMES.iter().all(|name| !reply.headers.contains_key(*name)));
    }
}
