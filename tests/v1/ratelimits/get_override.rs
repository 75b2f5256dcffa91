use domain::root_keys::default_workspace;
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
    let mut reader = kw.store().read().await.unwrap();
    let found = reader.find_namespace(&default_workspace(), "email.send").await.unwrap();
    (id, found.unwrap().id.as_str().to_owned())
}

on_both_stacks! {
    async fn an_override_is_told_by_the_id_and_by_the_name_of_its_namespace(kw) {
        let (id, namespace) = planted(&kw).await;
        let told = json!({
            "id": id, "identifier": "user_*", "limit": 3, "duration": 60_000, "async": false,
        });

        for named in [
            format!("namespaceId={namespace}"),
            "namespaceName=email.send".to_owned(),
            format!("namespaceId={namespace}&namespaceName=sms.send"),
            "namespaceId=&namespaceName=email.send".to_owned(),
        ] {
            let reply = get(&kw, &format!("{named}&identifier=user_*")).await;

            assert_eq!(*reply.v1_body(), told, "{named}");
        }
    }

    async fn a_pattern_is_a_text_here_and_finds_nothing_else(kw) {
        planted(&kw).await;

        for identifier in ["user_1", "user_", "*", "USER_*", "user_*_*"] {
            let query = format!("namespaceName=email.send&identifier={identifier}");
            let message = get(&kw, &query).await.assert_v1_error(404, "NOT_FOUND");

            assert!(message.contains(identifier), "{message}");
        }
    }

    async fn what_is_not_there_is_told_by_what_is_missing(kw) {
        planted(&kw).await;

        let namespace = get(&kw, "namespaceName=sms.send&identifier=user_*").await;
        let none = get(&kw, "identifier=user_*").await;
        let identifier = get(&kw, "namespaceName=email.send").await;
        kw.delete_namespace("email.send").await;
        let deleted = get(&kw, "namespaceName=email.send&identifier=user_*").await;

        let message = namespace.assert_v1_error(404, "NOT_FOUND");
        assert!(message.contains("namespace") && message.contains("sms.send"), "{message}");
        assert_eq!(
            none.assert_v1_error(400, "BAD_REQUEST"),
            "You must provide a namespaceId or a namespaceName"
        );
        assert_eq!(identifier.assert_v1_error(400, "BAD_REQUEST"), "identifier: Required");
        deleted.assert_v1_error(404, "NOT_FOUND");
    }
}
