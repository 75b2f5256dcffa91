//! Keys that may be used from some networks only.

use foundation::model::Networks;
use serde_json::json;

use super::{MINUTE, api_of, issued, verify_from};
use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::json::Fields as _;
use crate::support::seed::IssuedKey;

fn networks(list: &str) -> Option<Networks> {
    Networks::new(Networks::parse(list).unwrap())
}

/// A key that is good from these networks.
async fn key_within(kw: &Keyward, list: &str) -> IssuedKey {
    let key =
        issued(kw, json!({ "remaining": 100, "ratelimit": { "limit": 100, "duration": MINUTE } }))
            .await;
    let api = api_of(kw, &key).await;
    kw.update_api(&api, |settings| settings.allowed_networks = networks(list)).await;
    key
}

on_both_stacks! {
    async fn a_key_is_good_from_the_networks_of_its_api_alone(kw) {
        let key = key_within(&kw, "10.1.0.0/16, 192.0.2.7, 2001:db8::/32").await;

        for (address, code) in [
            ("10.1.255.255:1", "VALID"),
            ("10.2.0.0:1", "FORBIDDEN"),
            ("192.0.2.7:1", "VALID"),
            ("192.0.2.8:1", "FORBIDDEN"),
            ("[::ffff:192.0.2.7]:1", "VALID"),
            ("[2001:db8:ffff::1]:1", "VALID"),
            ("[2001:db9::1]:1", "FORBIDDEN"),
        ] {
            assert_eq!(verify_from(&kw, address, None, &key.key).await.assert_v1_code(code)["keyId"], key.id, "{address}");
        }
    }

    async fn where_no_address_is_known_the_key_is_refused(kw) {
        let key = key_within(&kw, "0.0.0.0/0,::/0").await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("FORBIDDEN");
        verify_from(&kw, "[::1]:1", None, &key.key).await.assert_v1_code("VALID");
    }

    async fn a_header_of_a_stranger_is_not_believed(kw) {
        let key = key_within(&kw, "10.0.0.0/8").await;
        verify_from(&kw, "192.0.2.1:1", Some("10.0.0.1"), &key.key).await.assert_v1_code("FORBIDDEN");
    }

    async fn a_trusted_proxy_says_from_where_a_key_is_used(kw) {
        let kw = Keyward::start_with(kw.stack, |settings| {
            settings.trusted_proxies = networks("127.0.0.0/8");
        })
        .await;
        let key = key_within(&kw, "10.0.0.0/8").await;

        for (forwarded, code) in [
            (Some("10.1.2.3"), "VALID"),
            (Some("11.1.2.3"), "FORBIDDEN"),
            (Some("192.0.2.1, 10.1.2.3"), "VALID"),
            (Some("10.1.2.3, 192.0.2.1"), "FORBIDDEN"),
            (Some("10.1.2.3, 127.0.0.2"), "VALID"),
            (None, "FORBIDDEN"),
        ] {
            verify_from(&kw, "127.0.0.1:1", forwarded, &key.key).await.assert_v1_code(code);
        }
    }

    async fn nothing_is_spent_from_elsewhere(kw) {
        let key = key_within(&kw, "10.0.0.0/8").await;
        verify_from(&kw, "192.0.2.1:1", None, &key.key).await.assert_v1_code("FORBIDDEN");
        let reply = verify_from(&kw, "10.0.0.1:1", None, &key.key).await;
        reply.assert_v1_code("VALID").assert_has(json!({ "remaining": 99, "ratelimit.remaining": 99 }));
    }
}
