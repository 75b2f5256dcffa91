//! Names hold nothing that changes how the text around them is shown.

use serde_json::{Value, json};

use crate::both;

/// A terminal's escape, a control character of Latin 1, a line break, and an override of the direction of text.
const HIDDEN: [char; 4] = ['\u{1b}', '\u{9b}', '\n', '\u{202e}'];

both! {
    async fn names_with_hidden_characters_are_refused_everywhere(kw) {
        let key = kw.key(json!({})).await;
        let api = kw.api().await;
        let limit = |name: &str| json!([{ "name": name, "limit": 5, "duration": 1000, "autoApply": true }]);
        for c in HIDDEN {
            let name = format!("name{c}[2J");
            let requests: [(&str, Value, &str); 8] = [
                ("apis.createApi", json!({ "name": name }), "name"),
                ("keys.createKey", json!({ "apiId": api, "name": name }), "name"),
                ("keys.updateKey", json!({ "keyId": key.id, "name": name }), "name"),
                ("keys.updateKey", json!({ "keyId": key.id, "ratelimits": limit(&name) }), "ratelimits[0].name"),
                ("permissions.createPermission", json!({ "name": name, "slug": "a.b" }), "name"),
                ("permissions.createRole", json!({ "name": name }), "name"),
                ("identities.createIdentity", json!({ "externalId": "user_1", "ratelimits": limit(&name) }), "ratelimits[0].name"),
                ("ratelimit.limit", json!({ "namespace": name, "identifier": "a", "limit": 5, "duration": 1000 }), "namespace"),
            ];
            for (operation, request, field) in requests {
                let reply = kw.v2(operation, request).await;
                let told = reply.error(400, "invalid_input")["errors"][0]["message"].clone();
                assert!(told.as_str().unwrap().contains(field), "{operation}: {told}");
            }
            kw.v1("apis.createApi", json!({ "name": name })).await.error_v1(400, "BAD_REQUEST");
            let role = json!({ "keyId": key.id, "roles": [{ "name": name, "create": true }] });
            kw.v1("keys.setRoles", role).await.error_v1(400, "BAD_REQUEST");
        }
        assert_eq!(kw.rows("roles").await + kw.rows("permissions").await, 0);
    }

    async fn identifiers_of_the_customer_may_hold_anything(kw) {
        for c in HIDDEN {
            let request = json!({
                "namespace": "requests", "identifier": format!("a{c}"), "limit": 5, "duration": 1000,
            });
            kw.v2("ratelimit.limit", request).await.data();
        }
    }

    async fn names_in_any_writing_are_taken(kw) {
        for name in ["الفواتير", "חיובים", "請求書", "Größe é", "👩\u{200d}💻 team"] {
            kw.v2("apis.createApi", json!({ "name": name })).await.data();
        }
    }
}
