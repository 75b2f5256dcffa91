use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn get(kw: &Keyward, query: &str) -> Reply {
    kw.v1_get("ratelimits.getOverride", query).await
}

/// Two overrides in `email.send`; the id of the first and of the namespace.
async fn planted(kw: &Keyward) -> (String, String) {
    kw.check_limit("email.send", "nobody", json!({})).await.data();
    let id = kw.set_override("email.send", "user_*", json!({ "limit": 3 })).await;
    kw.set_override("email.send", "user_*_b", json!({ "limit": 4 })).await;
    (id, kw.find_namespace_id("email.send").await)
}

on_both_stacks! {
    async fn an_override_is_told_by_the_id_and_by_the_name_of_its_namespace(kw) {
        let (id, namespace) = planted(&kw).await;
        let told = json!({ "id": id, "identifier": "user_*", "limit": 3, "duration": 60_000, "async": false });

        for named in [
            format!("namespaceId={namespace}"),
            "namespaceName=email.send".to_owned(),
            format!("namespaceId={namespace}&namespaceName=sms.send"),
            "namespaceId=&namespaceName=email.send".to_owned(),
        ] {
            assert_eq!(*get(&kw, &format!("{named}&identifier=user_*")).await.v1_body(), told, "{named}");
        }
    }

    async fn a_pattern_is_a_text_here_and_finds_nothing_else(kw) {
        planted(&kw).await;
        for identifier in ["user_1", "user_", "*", "USER_*", "user_*_*"] {
            let query = format!("namespaceName=email.send&identifier={identifier}");
            get(&kw, &query).await.assert_v1_error_about(404, "NOT_FOUND", &[identifier]);
        }
    }

    async fn what_is_not_there_is_told_by_what_is_missing(kw) {
        planted(&kw).await;

        let namespace = get(&kw, "namespaceName=sms.send&identifier=user_*").await;
        assert_eq!(
            get(&kw, "identifier=user_*").await.assert_v1_error(400, "BAD_REQUEST"),
            "You must provide a namespaceId or a namespaceName",
        );
        assert_eq!(get(&kw, "namespaceName=email.send").await.assert_v1_error(400, "BAD_REQUEST"), "identifier: Required");
        kw.delete_namespace("email.send").await;
        get(&kw, "namespaceName=email.send&identifier=user_*").await.assert_v1_error(404, "NOT_FOUND");

        namespace.assert_v1_error_about(404, "NOT_FOUND", &["namespace", "sms.send"]);
    }
}
