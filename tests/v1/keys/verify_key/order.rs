//! Which refusal comes first.

use serde_json::{Value, json};

use super::{MINUTE, api_of, assert_unknown, execute, issued, issued_by, update};
use crate::on_both_stacks;
use crate::support::NOON;

on_both_stacks! {
    async fn the_first_check_that_fails_decides(kw) {
        kw.create_permission("documents.read").await;
        let key = issued(&kw, json!({
            "remaining": 1, "ratelimit": { "limit": 1, "duration": MINUTE },
        })).await;
        let api = api_of(&kw, &key).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        update(&kw, &key, json!({ "enabled": false, "expires": NOON.0 - 1 })).await;
        // Nobody's address is known here, so nobody is within.
        let networks = foundation::model::Networks::parse("10.0.0.0/8").unwrap();
        let networks = foundation::model::Networks::new(networks);
        kw.update_api(&api, |settings| settings.allowed_networks = networks).await;
        let asked = |api: &str, permissions: Value| json!({
            "apiId": api, "authorization": { "permissions": permissions },
            "ratelimits": [{ "name": "nothing" }],
        });
        let (elsewhere, here) = (
            asked("api_another", json!("documents.read")), asked(&api, json!("documents.read")),
        );

        // Each step mends what decided the one before.
        let broken = asked("api_another", json!([]));
        kw.verify_v1("nobody", broken).await.assert_v1_error(400, "BAD_REQUEST");
        assert_unknown(&kw.verify_v1("nobody", elsewhere.clone()).await);
        kw.verify_v1(&key.key, elsewhere.clone()).await.assert_v1_code("DISABLED");
        update(&kw, &key, json!({ "enabled": true })).await;
        kw.verify_v1(&key.key, elsewhere).await.assert_v1_code("FORBIDDEN");
        kw.verify_v1(&key.key, here.clone()).await.assert_v1_code("EXPIRED");
        update(&kw, &key, json!({ "expires": null })).await;
        kw.verify_v1(&key.key, here.clone()).await.assert_v1_code("FORBIDDEN");
        kw.update_api(&api, |settings| settings.allowed_networks = None).await;
        kw.verify_v1(&key.key, here.clone()).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");
        let permissions = json!([{ "name": "documents.read" }]);
        update(&kw, &key, json!({ "permissions": permissions })).await;
        kw.verify_v1(&key.key, here).await.assert_v1_error(400, "BAD_REQUEST");
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("RATE_LIMITED");
        kw.clock.advance_ms(2 * MINUTE);
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("USAGE_EXCEEDED");
        let one = json!({ "keyId": key.id, "op": "set", "value": 1 });
        kw.v1("keys.updateRemaining", one).await.v1_body();
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn a_key_of_a_disabled_workspace_is_an_error_whatever_its_state(kw) {
        let stranger = kw.create_other_workspace().await;
        let good = issued_by(&kw, &stranger, json!({})).await;
        let disabled = issued_by(&kw, &stranger, json!({ "enabled": false })).await;
        let own = issued(&kw, json!({})).await;
        execute(&kw, "UPDATE workspaces SET enabled = FALSE WHERE id <> 'ws_default'").await;

        for key in [good, disabled] {
            let message = kw.verify_v1(&key.key, json!({})).await.assert_v1_error(403, "FORBIDDEN");
            assert!(message.contains("workspace is disabled"), "{message}");
        }
        assert_unknown(&kw.verify_v1("nobody", json!({})).await);
        kw.verify_v1(&own.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn a_key_is_good_for_its_own_api_alone(kw) {
        let (key, other) = (issued(&kw, json!({})).await, issued(&kw, json!({})).await);
        let (own, others) = (api_of(&kw, &key).await, api_of(&kw, &other).await);

        for (api, code) in [
            (own.clone(), "VALID"),
            (String::new(), "VALID"),
            (others, "FORBIDDEN"),
            ("api_nowhere".into(), "FORBIDDEN"),
            (own.to_uppercase(), "FORBIDDEN"),
            (format!("{own} "), "FORBIDDEN"),
        ] {
            kw.verify_v1(&key.key, json!({ "apiId": api })).await.assert_v1_code(code);
        }
    }

    async fn a_key_expires_after_its_last_millisecond(kw) {
        let key = issued(&kw, json!({ "expires": NOON.0 + 1000 })).await;

        kw.clock.advance_ms(1000);
        let at = kw.verify_v1(&key.key, json!({})).await;
        kw.clock.advance_ms(1);
        let after = kw.verify_v1(&key.key, json!({})).await;

        at.assert_v1_code("VALID");
        after.assert_v1_code("EXPIRED");
    }

    async fn a_key_is_good_again_once_its_expiry_moves_or_it_is_enabled(kw) {
        let expired = issued(&kw, json!({ "expires": 1 })).await;
        let disabled = issued(&kw, json!({ "enabled": false })).await;
        kw.verify_v1(&expired.key, json!({})).await.assert_v1_code("EXPIRED");
        kw.verify_v1(&disabled.key, json!({})).await.assert_v1_code("DISABLED");

        update(&kw, &expired, json!({ "expires": NOON.0 + 1 })).await;
        update(&kw, &disabled, json!({ "enabled": true })).await;

        kw.verify_v1(&expired.key, json!({})).await.assert_v1_code("VALID");
        kw.verify_v1(&disabled.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn a_call_that_is_refused_spends_nothing(kw) {
        let key = issued(&kw, json!({
            "remaining": 1, "ratelimit": { "limit": 1, "duration": MINUTE },
        })).await;
        let verify = |request: Value| kw.verify_v1(&key.key, request);

        let refused = json!({ "authorization": { "permissions": "documents.read" } });
        verify(refused).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");
        verify(json!({ "apiId": "api_another" })).await.assert_v1_code("FORBIDDEN");
        let unknown = json!({ "ratelimits": [{ "name": "nothing" }] });
        verify(unknown).await.assert_v1_error(400, "BAD_REQUEST");
        verify(json!({ "authorization": { "permissions": {} } })).await.assert_v1_error(400, "BAD_REQUEST");
        update(&kw, &key, json!({ "enabled": false })).await;
        verify(json!({})).await.assert_v1_code("DISABLED");
        update(&kw, &key, json!({ "enabled": true, "expires": NOON.0 - 1 })).await;
        verify(json!({})).await.assert_v1_code("EXPIRED");
        update(&kw, &key, json!({ "expires": null })).await;

        assert_eq!(verify(json!({})).await.assert_v1_code("VALID")["remaining"], 0);
    }
}
