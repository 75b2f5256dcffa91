//! A slash at the end of the URL that a gateway asks. It stands for the path `/` of the request.

use serde_json::json;

use super::{Gateway, header, send};
use crate::on_both_stacks;

on_both_stacks! {
    async fn slash_after_the_policy_is_the_root_path_unless_a_header_tells_another(kw) {
        let rules = json!([{ "methods": ["GET"], "path": "/" }, { "path": "/a" }]);
        let mut gateway = Gateway::create(&kw, json!({ "rules": rules })).await;
        let bearer = format!("Bearer {}", gateway.create_key(json!({ "credits": { "remaining": 9 } })).await.key);
        "/gateway/edge/".clone_into(&mut gateway.target);

        for (told, status) in [
            (vec![], 200),
            (vec![("x-forwarded-method", "GET"), ("x-forwarded-uri", "/")], 200),
            (vec![("x-forwarded-method", "GET"), ("x-forwarded-uri", "/a")], 404),
            (vec![("x-original-method", "GET"), ("x-original-uri", "/?b")], 404),
            (vec![("x-original-method", "POST"), ("x-original-uri", "/")], 403),
        ] {
            let told = [&[("authorization", bearer.as_str())], &told[..]].concat();
            let reply = gateway.ask(&told).await;
            assert_eq!(reply.status.as_u16(), status, "{told:?}");
            if status == 404 {
                assert_eq!((&reply.body["title"], &reply.body["code"]), (&json!("Not Found"), &json!("CONTRADICTORY_PATH")));
                assert!(reply.body["detail"].as_str().unwrap().contains("remove the slash"), "{}", reply.text);
            }
        }
        // Only those that were admitted have spent anything.
        let reply = gateway.ask(&[("authorization", &bearer)]).await;
        assert_eq!(header(&reply, "keyward-credits-remaining"), Some("6"));
        // Deeper paths that contradict each other stay unknown, and a gateway without a secret learns nothing.
        "/gateway/edge/a".clone_into(&mut gateway.target);
        let other = [("authorization", bearer.as_str()), ("x-original-uri", "/b")];
        assert_eq!(gateway.ask(&other).await.status, 403);
        let reply = send(&kw, "GET", "/gateway/edge/", &[("x-original-uri", "/a")]).await;
        assert_eq!(reply.status, 403);
    }
}
