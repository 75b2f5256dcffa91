use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::scenario::{pass, plain, read, update};
use crate::support::version::Version::V1;
use crate::support::{Keyward, NOON, Reply};

const HOUR: i64 = 3_600_000;

async fn get(kw: &Keyward, root_key: &str, query: &str) -> Reply {
    kw.v1_get_as(root_key, "keys.getKey", query).await
}

on_both_stacks! {
    async fn a_key_of_version_2_is_told_in_the_words_of_version_1(kw) {
        kw.v2("permissions.createPermission", json!({ "name": "Read documents", "slug": "docs.read" })).await.data();
        kw.create_role("editor", ["docs.write", "docs.read"]).await;
        let identity = kw.create_identity("user_1", json!({ "meta": { "plan": "pro" } })).await;
        let uploads = json!({ "name": "uploads", "limit": 5, "duration": 2_000 });
        let key = kw.create_key(json!({
            "externalId": "user_1", "roles": ["editor"], "permissions": ["docs.read"],
            "credits": { "remaining": 7, "refill": { "interval": "daily", "amount": 9 } },
            "ratelimits": [uploads, { "name": "default", "limit": 60, "duration": 60_000 }],
        })).await;
        let other = kw.create_key(json!({ "ratelimits": [uploads] })).await;

        kw.get_key_v1(&key.id).await.assert_has(json!({
            "id": key.id, "remaining": 7, "ratelimit.limit": 60, "ratelimit.duration": 60_000, "ownerId": "user_1",
            "refill": { "interval": "daily", "amount": 9, "refillDay": null, "lastRefillAt": NOON.0 },
            "permissions": ["docs.read", "docs.write"], "roles": ["editor"],
            "identity": { "id": identity, "externalId": "user_1", "meta": { "plan": "pro" } },
        }));
        assert_eq!(kw.get_key_v1(&other.id).await.get("ratelimit"), None);
    }

    async fn it_tells_what_is_left_and_when_the_key_was_refilled_and_changed(kw) {
        let daily = json!({ "interval": "daily", "amount": 9 });
        let refilled = |hour: i64| read(json!({ "refill.lastRefillAt": NOON.0 + hour * HOUR }));
        let used = || plain("VALID", json!({}));
        kw.run(V1, vec![
            // Due, and done.
            ("a new key counts as refilled and then is at midnight", json!({ "remaining": 7, "refill": daily }), vec![
                pass(HOUR), refilled(0), pass(23 * HOUR), refilled(12), used(), refilled(12),
            ]),
            ("a refill that came with a change has not been until it is due", json!({ "remaining": 7 }), vec![
                update(json!({ "refill": daily })), read(json!({ "refill": { "interval": "daily", "amount": 9, "refillDay": null } })),
                pass(12 * HOUR), refilled(12), used(), refilled(12), used(),
            ]),
            ("looking spends nothing", json!({ "remaining": 2, "refill": daily }), vec![
                used(), read(json!({ "remaining": 1 })), read(json!({ "remaining": 1 })), read(json!({ "remaining": 1 })),
                pass(12 * HOUR), read(json!({ "remaining": 9 })),
            ]),
            ("when it was changed is told once it was", json!({}), vec![
                read(json!({ "updatedAt": null })), pass(HOUR), update(json!({ "name": "renamed" })),
                read(json!({ "updatedAt": NOON.0 + HOUR, "createdAt": NOON.0 })),
            ]),
            ("a disabled key is told", json!({ "enabled": false }), vec![read(json!({ "enabled": false }))]),
            ("an expired key is told", json!({ "expires": NOON.0 - 1 }), vec![read(json!({ "expires": NOON.0 - 1 }))]),
        ]).await;
    }

    async fn a_list_tells_of_a_refill_as_the_key_itself_does(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_v1(&api, json!({ "remaining": 7, "refill": { "interval": "daily", "amount": 9 } })).await;
        for hours in [1, 23, 0] {
            kw.clock.advance_ms(hours * HOUR);
            let listed = kw.v1_get("apis.listKeys", &format!("apiId={api}")).await;
            assert_eq!(listed.v1_body()["keys"][0], kw.get_key_v1(&key.id).await);
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        }
    }

    async fn a_recoverable_key_is_shown_to_who_means_it_and_has_the_right(kw) {
        let (api, other) = (kw.create_api().await, kw.create_api().await);
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let key = kw.create_key_in(&api, json!({ "recoverable": true })).await;
        for (decrypt, is_shown) in [
            ("", false), ("&decrypt=", false), ("&decrypt=false", false), ("&decrypt=0", false), ("&decrypt=true", true), ("&decrypt=1", true),
        ] {
            let reply = get(&kw, &kw.root_key, &format!("keyId={}{decrypt}", key.id)).await;
            assert_eq!(reply.v1_body().get("plaintext"), is_shown.then(|| json!(key.key)).as_ref(), "{reply}");
        }
        assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.decrypt", "key.decrypt"]);

        let (of_own, of_other) = (format!("api.{api}.decrypt_key"), format!("api.{other}.decrypt_key"));
        for (right, may) in [("api.*.read_api", false), (&of_other, false), ("api.*.decrypt_key", true), (&of_own, true)] {
            let root_key = kw.create_root_key(["api.*.read_key", right]).await;
            let reply = get(&kw, &root_key, &format!("keyId={}&decrypt=true", key.id)).await;
            if may {
                assert_eq!(reply.v1_body()["plaintext"], key.key, "{right}");
            } else {
                reply.assert_v1_error_about(403, "INSUFFICIENT_PERMISSIONS", &["api.*.decrypt_key", &of_own]);
                assert!(!reply.text.contains(&key.key));
            }
        }
        // Where no copy is kept, none is shown.
        for key in [kw.create_key_in(&api, json!({})).await, kw.create_key(json!({})).await] {
            let reply = get(&kw, &kw.root_key, &format!("keyId={}&decrypt=true", key.id)).await;
            reply.v1_body().assert_has(json!({ "id": key.id, "plaintext": null }));
        }
    }

    async fn a_key_is_asked_for_by_its_id_and_never_told_itself(kw) {
        for (query, message) in [("", "keyId: Required"), ("keyId=", "keyId: String must contain at least 1 character(s)")] {
            assert_eq!(get(&kw, &kw.root_key, query).await.assert_v1_error(400, "BAD_REQUEST"), message);
        }
        let key = kw.create_key(json!({ "prefix": "prod" })).await;
        let reply = get(&kw, &kw.root_key, &format!("keyId={}", key.id)).await;
        let told: &Value = reply.v1_body();
        assert_eq!((told.get("hash"), told.get("key")), (None, None));
        assert!(!reply.text.contains(&key.key), "{reply}");
    }
}
