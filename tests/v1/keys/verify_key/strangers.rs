//! Who may ask: anybody, as far as the operator lets them.

use axum::body::Body;
use axum::http::Request;
use foundation::config::OpenVerification;
use foundation::model::Networks;
use serde_json::json;

use super::{MINUTE, assert_unknown, issued, verify_from};
use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, Reply};

const HERE: &str = "192.0.2.1:1000";

/// A server that lets each address ask for so many unknown keys in a minute.
async fn limited(kw: &Keyward, keys: u64) -> Keyward {
    Keyward::start_with(kw.stack, |settings| settings.security.unknown_keys_per_minute = keys).await
}

/// Asks for as many keys that do not exist.
async fn ask_in_vain(kw: &Keyward, address: &str, times: usize) {
    for _ in 0..times {
        let key = format!("never_{}", crate::support::random_letters());
        assert_unknown(&verify_from(kw, address, None, &key).await);
    }
}

/// Fails unless who asks from there is refused.
async fn assert_refused(kw: &Keyward, address: &str) {
    let key = format!("never_{}", crate::support::random_letters());
    verify_from(kw, address, None, &key).await.assert_v1_error_about(
        429,
        "RATE_LIMITED",
        &["too many keys that do not exist"],
    );
}

on_both_stacks! {
    async fn an_operator_can_switch_it_off(kw) {
        let kw = Keyward::start_with(kw.stack, |settings| settings.security.open_verification = OpenVerification::Off).await;
        let key = issued(&kw, json!({ "remaining": 9 })).await;

        for shown in [&*key.key, "nobody"] {
            kw.verify_v1(shown, json!({})).await.assert_v1_error_about(403, "FORBIDDEN", &["KEYWARD_OPEN_VERIFICATION"]);
        }
        // A root key changes nothing.
        kw.v1("keys.verifyKey", json!({ "key": key.key })).await.assert_v1_error(403, "FORBIDDEN");
        kw.verify(&key.key).await.assert_code("VALID").assert_has(json!({ "credits": 8 }));
    }

    async fn who_asks_for_too_many_keys_that_do_not_exist_is_refused(kw) {
        let kw = limited(&kw, 3).await;
        ask_in_vain(&kw, HERE, 3).await;
        assert_refused(&kw, HERE).await;
        assert_refused(&kw, "192.0.2.1:2000").await;
        ask_in_vain(&kw, "192.0.2.2:1000", 3).await;
    }

    async fn what_is_refused_is_not_counted_and_a_minute_later_it_is_over(kw) {
        let kw = limited(&kw, 3).await;
        ask_in_vain(&kw, HERE, 3).await;
        for _ in 0..5 {
            assert_refused(&kw, HERE).await;
        }

        kw.clock.advance_ms(2 * MINUTE);

        ask_in_vain(&kw, HERE, 3).await;
        assert_refused(&kw, HERE).await;
    }

    async fn a_key_that_is_in_use_verifies_whatever_else_is_asked_for_from_there(kw) {
        let kw = limited(&kw, 2).await;
        let key = issued(&kw, json!({ "remaining": 9 })).await;
        verify_from(&kw, HERE, None, &key.key).await.assert_v1_code("VALID");

        ask_in_vain(&kw, HERE, 2).await;
        assert_refused(&kw, HERE).await;

        assert_eq!(verify_from(&kw, HERE, None, &key.key).await.assert_v1_code("VALID")["remaining"], 7);
    }

    async fn keys_that_exist_are_not_counted(kw) {
        let kw = limited(&kw, 2).await;
        for _ in 0..4 {
            let key = issued(&kw, json!({ "enabled": false })).await;
            verify_from(&kw, HERE, None, &key.key).await.assert_v1_code("DISABLED");
        }

        ask_in_vain(&kw, HERE, 2).await;
    }

    async fn a_network_of_ipv6_counts_as_one_address(kw) {
        let kw = limited(&kw, 2).await;
        ask_in_vain(&kw, "[2001:db8:0:1::1]:1", 1).await;
        ask_in_vain(&kw, "[2001:db8:0:1:ffff::2]:1", 1).await;
        assert_refused(&kw, "[2001:db8:0:1::3]:1").await;
        ask_in_vain(&kw, "[2001:db8:0:2::1]:1", 2).await;
    }

    async fn an_address_of_ipv4_is_the_same_in_either_form(kw) {
        let kw = limited(&kw, 2).await;
        ask_in_vain(&kw, "[::ffff:192.0.2.1]:1", 2).await;
        assert_refused(&kw, HERE).await;
        ask_in_vain(&kw, "[::ffff:192.0.2.2]:1", 1).await;
    }

    async fn behind_a_trusted_proxy_its_clients_are_counted(kw) {
        let kw = Keyward::start_with(kw.stack, |settings| {
            settings.security.unknown_keys_per_minute = 1;
            settings.trusted_proxies = Networks::new(Networks::parse("127.0.0.1").unwrap());
        })
        .await;
        let ask = async |client: &str, key: &str| { verify_from(&kw, "127.0.0.1:1", Some(client), key).await };

        assert_unknown(&ask("192.0.2.1", "never_1").await);
        ask("192.0.2.1", "never_2").await.assert_v1_error(429, "RATE_LIMITED");
        assert_unknown(&ask("192.0.2.2", "never_3").await);
    }

    async fn a_forwarded_header_means_nothing_when_no_proxy_is_trusted(kw) {
        let kw = limited(&kw, 2).await;
        for n in 0..2 {
            let client = format!("198.51.100.{n}");
            let key = format!("never_{n}");
            assert_unknown(&verify_from(&kw, HERE, Some(&client), &key).await);
        }

        verify_from(&kw, HERE, Some("198.51.100.9"), "never_9").await.assert_v1_error(429, "RATE_LIMITED");
    }

    async fn minimal_verification_answers_the_result_and_the_limit_alone(kw) {
        let change = |settings: &mut foundation::config::Settings| {
            settings.security.open_verification = OpenVerification::Minimal;
        };
        let kw = Keyward::start_with(kw.stack, change).await;
        let limit = json!({ "limit": 5, "duration": 60_000 });
        let key = issued(&kw, json!({ "name": "a name", "remaining": 9, "ratelimit": limit, "meta": { "a": 1 } })).await;
        let disabled = issued(&kw, json!({ "enabled": false, "name": "a name" })).await;
        let fields_of = |reply: &Reply| -> Vec<String> { reply.v1_body().as_object().unwrap().keys().cloned().collect() };

        let valid = verify_from(&kw, HERE, None, &key.key).await;
        let refused = verify_from(&kw, HERE, None, &disabled.key).await;
        let asked = json!({ "key": key.key, "ratelimits": [{ "name": "uploads" }] });
        let request = Request::post("/v1/keys.verifyKey")
            .header("content-type", "application/json")
            .body(Body::from(asked.to_string()))
            .unwrap();
        let unknown = kw.send(request).await;

        let told = unknown.assert_v1_error(400, "BAD_REQUEST");
        assert!(told.contains("uploads") && !told.contains("key_"), "{told}");
        assert_eq!(valid.assert_v1_code("VALID")["ratelimit"]["remaining"], 4);
        assert_eq!(fields_of(&valid), ["code", "ratelimit", "requestId", "valid"]);
        refused.assert_v1_code("DISABLED");
        assert_eq!(fields_of(&refused), ["code", "requestId", "valid"]);
    }

    async fn minimal_verification_does_not_name_the_limit_that_rejects(kw) {
        let change = |settings: &mut foundation::config::Settings| {
            settings.security.open_verification = OpenVerification::Minimal;
        };
        let kw = Keyward::start_with(kw.stack, change).await;
        let key = issued(&kw, json!({ "ratelimit": { "limit": 1, "duration": 60_000 } })).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

        let rejected = kw.verify_v1(&key.key, json!({})).await;

        rejected.assert_v1_code("RATE_LIMITED");
        assert_eq!(rejected.headers.get("unkey-ratelimit-triggered"), None);
    }

    async fn a_limit_of_0_is_none(kw) {
        let kw = limited(&kw, 0).await;
        ask_in_vain(&kw, HERE, 30).await;
    }

    async fn who_has_a_root_key_is_not_counted(kw) {
        let kw = limited(&kw, 1).await;
        let ask = async |key: &str| {
            let request = Request::post("/v2/keys.verifyKey")
                .header("content-type", "application/json")
                .header("authorization", format!("Bearer {}", kw.root_key))
                .body(Body::from(json!({ "key": key }).to_string()))
                .unwrap();
            request::PEER.scope(HERE.parse().unwrap(), kw.send(request)).await
        };

        for key in ["never_1", "never_2", "never_3"] {
            ask(key).await.assert_code("NOT_FOUND");
        }
        ask_in_vain(&kw, HERE, 1).await;
    }
}

#[test]
fn where_nothing_is_set_anybody_may_ask_for_ten_thousand_a_minute() {
    let settings = foundation::config::Config::default().validate().unwrap();

    let security = settings.security;
    assert_eq!(security.open_verification, OpenVerification::On);
    assert_eq!(security.unknown_keys_per_minute, 10_000);
}
