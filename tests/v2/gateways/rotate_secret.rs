use serde_json::json;

use super::create;
use crate::on_both_stacks;

on_both_stacks! {
    async fn new_secret_is_returned(kw) {
        let old = create(&kw, json!({})).await;

        let new = kw.v2("gateways.rotateSecret", json!({ "policyId": "edge" })).await;

        assert_eq!(new.text_of("policyId"), old.text_of("policyId"));
        assert_ne!(new.text_of("secret"), old.text_of("secret"));
    }

    async fn permissions_of_what_the_policy_may_do_are_required(kw) {
        let reply = create(&kw, json!({ "namespaces": [{ "namespace": "edge" }] })).await;
        let rotate = json!({ "policyId": reply.text_of("policyId") });
        let (update, verify) = ("gateway.*.update_policy", "api.*.verify_key");

        for permissions in [vec![update], vec![update, verify], vec![update, "ratelimit.*.limit"]] {
            let root_key = kw.create_root_key_with(permissions.iter().map(|&it| it.to_owned()).collect()).await;
            kw.v2_as(&root_key, "gateways.rotateSecret", rotate.clone()).await.assert_error(403, "insufficient_permissions");
        }
        let root_key = kw.create_root_key([update, verify, "ratelimit.*.limit"]).await;
        kw.v2_as(&root_key, "gateways.rotateSecret", rotate).await.data();
    }

    async fn expiration_has_bounds(kw) {
        create(&kw, json!({})).await.data();
        for (expiration, is_valid) in [(-1, false), (0, true), (604_800_000, true), (604_800_001, false)] {
            let request = json!({ "policyId": "edge", "expiration": expiration });
            let reply = kw.v2("gateways.rotateSecret", request).await;
            assert_eq!(reply.status == 200, is_valid, "{expiration}: {}", reply.text);
        }
    }
}
