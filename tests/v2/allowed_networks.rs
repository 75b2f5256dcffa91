//! Keys that may be used from some networks only, and what else an API is set to.

use foundation::model::Networks;
use serde_json::json;

use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::json::Fields as _;

async fn allow(kw: &Keyward, api: &str, networks: &str) {
    let networks = Networks::new(Networks::parse(networks).unwrap());
    kw.update_api(api, |settings| settings.allowed_networks = networks).await;
}

on_both_stacks! {
    async fn a_key_is_good_from_the_networks_of_its_api_alone(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        allow(&kw, &api, "10.1.0.0/16, 192.0.2.7, 2001:db8::/32").await;

        for (address, code) in [
            ("10.1.0.0", "VALID"),
            ("10.1.255.255", "VALID"),
            ("10.0.255.255", "FORBIDDEN"),
            ("10.2.0.0", "FORBIDDEN"),
            ("192.0.2.7", "VALID"),
            ("192.0.2.8", "FORBIDDEN"),
            ("::ffff:192.0.2.7", "VALID"),
            ("2001:db8:ffff::1", "VALID"),
            ("2001:db9::1", "FORBIDDEN"),
        ] {
            assert_eq!(kw.verify_with(&key.key, json!({ "ipAddress": address })).await.data()["code"], code, "{address}");
        }
        allow(&kw, &api, "").await;
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn nothing_is_spent_from_elsewhere_and_the_key_is_told(kw) {
        let api = kw.create_api().await;
        let fields = json!({
            "name": "mine", "credits": { "remaining": 1 },
            "ratelimits": [{ "name": "one", "limit": 1, "duration": 60_000, "autoApply": true }],
        });
        let key = kw.create_key_in(&api, fields).await;
        allow(&kw, &api, "10.0.0.0/8").await;

        let refused = kw.verify_with(&key.key, json!({ "ipAddress": "192.0.2.1" })).await;
        kw.verify_with(&key.key, json!({ "ipAddress": "10.0.0.1" })).await.assert_code("VALID");

        refused.assert_code("FORBIDDEN").assert_has(json!({ "name": "mine", "credits": 1 }));
    }

    async fn where_no_address_is_known_the_key_is_refused(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        allow(&kw, &api, "0.0.0.0/0,::/0").await;
        kw.verify(&key.key).await.assert_code("FORBIDDEN");
        kw.verify_with(&key.key, json!({ "ipAddress": "::1" })).await.assert_code("VALID");
    }

    async fn what_is_no_address_is_refused_by_its_field(kw) {
        for wrong in ["localhost", "10.0.0.0/8", "1.2.3", "1.2.3.4.5", ""] {
            let reply = kw.verify_with("a_key", json!({ "ipAddress": wrong })).await;
            let errors = reply.assert_error(400, "invalid_input")["errors"].to_string();
            assert!(errors.contains("ipAddress"), "{wrong}: {errors}");
        }
    }

    async fn disabled_and_expired_are_told_before_and_permissions_after(kw) {
        let api = kw.create_api().await;
        let disabled = kw.create_key_in(&api, json!({ "enabled": false })).await;
        let expired = kw.create_key_in(&api, json!({ "expires": 1 })).await;
        let key = kw.create_key_in(&api, json!({})).await;
        allow(&kw, &api, "10.0.0.0/8").await;

        kw.verify(&disabled.key).await.assert_code("DISABLED");
        kw.verify(&expired.key).await.assert_code("EXPIRED");
        kw.verify_with(&key.key, json!({ "permissions": "docs.read" })).await.assert_code("FORBIDDEN");
    }

    async fn keys_are_made_as_their_api_is_set_where_nothing_else_is_asked_for(kw) {
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| {
            settings.default_prefix = Some("acme_live".into());
            settings.default_byte_length = Some(40);
        })
        .await;
        let bytes = |key: &str| bs58::decode(key.rsplit('_').next().unwrap()).into_vec().unwrap().len();

        let bare = kw.create_key_in(&api, json!({})).await;
        let asked = kw.create_key_in(&api, json!({ "prefix": "other", "byteLength": 20 })).await;
        let rerolled = kw.v2("keys.rerollKey", json!({ "keyId": bare.id, "expiration": 0 })).await.text_of("key");

        assert!(bare.key.starts_with("acme_live_"), "{}", bare.key);
        assert!(asked.key.starts_with("other_"), "{}", asked.key);
        assert!(rerolled.starts_with("acme_live_"), "{rerolled}");
        assert_eq!((bytes(&bare.key), bytes(&asked.key), bytes(&rerolled)), (40, 20, 40));
    }

    async fn a_protected_api_is_not_deleted(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        kw.update_api(&api, |settings| settings.is_delete_protected = true).await;

        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.assert_error_about(412, "protected_resource", &[&api]);

        kw.verify(&key.key).await.assert_code("VALID");
        kw.update_api(&api, |settings| settings.is_delete_protected = false).await;
        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.data();
        assert_eq!(kw.list_audit_events(&api).await, ["api.create", "api.delete", "api.update", "api.update"]);
    }
}
