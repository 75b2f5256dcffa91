use serde_json::json;

use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, NOON, Reply};

async fn get(kw: &Keyward, identifier: &str) -> Reply {
    let request = json!({ "namespace": "email.send", "identifier": identifier });
    kw.v2("ratelimit.getOverride", request).await
}

on_both_stacks! {
    async fn every_field_is_told(kw) {
        kw.check_limit("email.send", "somebody", json!({})).await.data();
        let fields = json!({ "limit": 0, "duration": 1000, "expires": NOON.0 + 1 });
        let id = kw.set_override("email.send", "user_1", fields).await;

        assert_eq!(
            *get(&kw, "user_1").await.data(),
            json!({ "overrideId": id, "identifier": "user_1", "limit": 0, "duration": 1000, "expires": NOON.0 + 1 }),
        );
    }

    async fn it_finds_what_a_check_would_find(kw) {
        kw.check_limit("email.send", "somebody", json!({})).await.data();
        for identifier in ["user_*", "*", "user_1"] {
            kw.set_override("email.send", identifier, json!({})).await;
        }

        for (identifier, found) in [("user_1", "user_1"), ("user_2", "user_*"), ("x", "*"), ("user_*", "user_*")] {
            let reply = get(&kw, identifier).await;
            let checked = kw.check_limit("email.send", identifier, json!({})).await;

            assert_eq!(reply.data()["identifier"], found);
            reply.data().assert_has(json!({ "overrideId": checked.data()["overrideId"], "expires": null }));
        }
    }

    async fn what_has_expired_is_not_found(kw) {
        kw.check_limit("email.send", "somebody", json!({})).await.data();
        kw.set_override("email.send", "user_1", json!({ "expires": NOON.0 })).await;
        get(&kw, "user_1").await.data();
        kw.clock.advance_ms(1);
        get(&kw, "user_1").await.assert_error(404, "ratelimit_override_not_found");
    }

    async fn what_is_not_there_is_told_by_what_is_missing(kw) {
        get(&kw, "user_1").await.assert_error(404, "ratelimit_namespace_not_found");
        kw.check_limit("email.send", "user_1", json!({})).await.data();
        get(&kw, "user_1").await.assert_error(404, "ratelimit_override_not_found");
        kw.delete_namespace("email.send").await;
        get(&kw, "user_1").await.assert_error(404, "ratelimit_namespace_not_found");
    }

    async fn without_the_permission_there_is_none_whatever_is_there(kw) {
        let nobody = kw.create_root_key(["ratelimit.rlns_other.read_override"]).await;
        let request = json!({ "namespace": "email.send", "identifier": "user_1" });
        let ask = async || kw.v2_as(&nobody, "ratelimit.getOverride", request.clone()).await;

        let nothing = ask().await;
        kw.check_limit("email.send", "user_1", json!({})).await.data();
        kw.set_override("email.send", "user_1", json!({})).await;
        let something = ask().await;

        let error = nothing.assert_error(404, "ratelimit_override_not_found");
        assert_eq!(something.assert_error(404, "ratelimit_override_not_found"), error);
    }
}
