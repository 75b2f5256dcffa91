//! Which refusal comes first.

use foundation::model::Networks;
use serde_json::{Value, json};

use super::{MINUTE, api_of, assert_unknown, issued, issued_by, update};
use crate::on_both_stacks;
use crate::support::NOON;
use crate::support::scenario::update as change;
use crate::support::scenario::{Scenario, error, pass, plain, read, refuse, verify};
use crate::support::version::Version::V1;

fn limited() -> Value {
    json!({ "remaining": 1, "ratelimit": { "limit": 1, "duration": MINUTE } })
}

on_both_stacks! {
    async fn the_first_check_that_fails_decides(kw) {
        kw.create_permission("documents.read").await;
        let key = issued(&kw, limited()).await;
        let api = api_of(&kw, &key).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        update(&kw, &key, json!({ "enabled": false, "expires": NOON.0 - 1 })).await;
        // Nobody's address is known here, so nobody is within.
        let networks = Networks::new(Networks::parse("10.0.0.0/8").unwrap());
        kw.update_api(&api, |settings| settings.allowed_networks = networks).await;
        let asked = |api: &str, permissions: Value| json!({
            "apiId": api, "authorization": { "permissions": permissions }, "ratelimits": [{ "name": "nothing" }],
        });
        let (elsewhere, here) = (asked("api_another", json!("documents.read")), asked(&api, json!("documents.read")));
        let expect = async |request: &Value, code: &str| {
            kw.verify_v1(&key.key, request.clone()).await.assert_v1_code(code);
        };

        // Each step mends what decided the one before.
        kw.verify_v1("nobody", asked("api_another", json!([]))).await.assert_v1_error(400, "BAD_REQUEST");
        assert_unknown(&kw.verify_v1("nobody", elsewhere.clone()).await);
        expect(&elsewhere, "DISABLED").await;
        update(&kw, &key, json!({ "enabled": true })).await;
        expect(&elsewhere, "FORBIDDEN").await;
        expect(&here, "EXPIRED").await;
        update(&kw, &key, json!({ "expires": null })).await;
        expect(&here, "FORBIDDEN").await;
        kw.update_api(&api, |settings| settings.allowed_networks = None).await;
        expect(&here, "INSUFFICIENT_PERMISSIONS").await;
        update(&kw, &key, json!({ "permissions": [{ "name": "documents.read" }] })).await;
        kw.verify_v1(&key.key, here).await.assert_v1_error(400, "BAD_REQUEST");
        expect(&json!({}), "RATE_LIMITED").await;
        kw.clock.advance_ms(2 * MINUTE);
        expect(&json!({}), "USAGE_EXCEEDED").await;
        kw.v1("keys.updateRemaining", json!({ "keyId": key.id, "op": "set", "value": 1 })).await.v1_body();
        expect(&json!({}), "VALID").await;
    }

    async fn a_key_of_a_disabled_workspace_is_an_error_whatever_its_state(kw) {
        let stranger = kw.create_other_workspace().await;
        let good = issued_by(&kw, &stranger, json!({})).await;
        let disabled = issued_by(&kw, &stranger, json!({ "enabled": false })).await;
        let own = issued(&kw, json!({})).await;
        kw.execute_sql("UPDATE workspaces SET enabled = FALSE WHERE id <> 'ws_default'".into()).await;

        for key in [good, disabled] {
            kw.verify_v1(&key.key, json!({})).await.assert_v1_error_about(403, "FORBIDDEN", &["workspace is disabled"]);
        }
        assert_unknown(&kw.verify_v1("nobody", json!({})).await);
        kw.verify_v1(&own.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn a_key_is_good_for_its_own_api_alone(kw) {
        let (key, other) = (issued(&kw, json!({})).await, issued(&kw, json!({})).await);
        let (own, others) = (api_of(&kw, &key).await, api_of(&kw, &other).await);
        for (api, code) in [
            (&*own, "VALID"), ("", "VALID"), (&others, "FORBIDDEN"), ("api_nowhere", "FORBIDDEN"),
            (&own.to_uppercase(), "FORBIDDEN"), (&format!("{own} "), "FORBIDDEN"),
        ] {
            kw.verify_v1(&key.key, json!({ "apiId": api })).await.assert_v1_code(code);
        }
    }

    async fn a_key_expires_recovers_and_spends_nothing_when_it_is_refused(kw) {
        let none = || json!({});
        let bad = |request: Value| refuse(request, error(400, "BAD_REQUEST", &[]));
        let scenarios: Vec<Scenario> = vec![
            ("a key expires after its last millisecond", json!({ "expires": NOON.0 + 1000 }), vec![
                pass(1000), plain("VALID", none()), pass(1), plain("EXPIRED", none()),
            ]),
            ("a key is good again once its expiry moves", json!({ "expires": 1 }), vec![
                plain("EXPIRED", none()), change(json!({ "expires": NOON.0 + 1 })), plain("VALID", none()),
            ]),
            ("a key is good again once it is enabled", json!({ "enabled": false }), vec![
                plain("DISABLED", none()), change(json!({ "enabled": true })), plain("VALID", none()),
            ]),
            ("a call that is refused spends nothing", limited(), vec![
                verify(json!({ "authorization": { "permissions": "documents.read" } }), "INSUFFICIENT_PERMISSIONS", none()),
                verify(json!({ "apiId": "api_another" }), "FORBIDDEN", none()), bad(json!({ "ratelimits": [{ "name": "nothing" }] })),
                bad(json!({ "authorization": { "permissions": {} } })),
                change(json!({ "enabled": false })), plain("DISABLED", none()),
                change(json!({ "enabled": true, "expires": NOON.0 - 1 })), plain("EXPIRED", none()),
                change(json!({ "expires": null })), plain("VALID", json!({ "remaining": 0 })), read(json!({ "remaining": 0 })),
            ]),
        ];
        kw.run(V1, scenarios).await;
    }
}
