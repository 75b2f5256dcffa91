use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn list(kw: &Keyward, query: &str) -> Reply {
    kw.v1_get("ratelimits.listOverrides", query).await
}

/// Overrides of four identifiers in `email.send` and of one elsewhere; the ids of the four.
async fn planted(kw: &Keyward) -> Vec<String> {
    kw.check_limit("email.send", "nobody", json!({})).await.data();
    kw.check_limit("sms.send", "nobody", json!({})).await.data();
    kw.set_override("sms.send", "user_1", json!({})).await;
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(kw.set_override("email.send", &format!("user_{n}"), json!({})).await);
    }
    ids.sort();
    ids
}

fn ids(reply: &Reply) -> Vec<String> {
    let id = |known: &Value| known["id"].as_str().unwrap().to_owned();
    reply.v1_body()["overrides"].as_array().unwrap().iter().map(id).collect()
}

on_both_stacks! {
    async fn each_is_told_as_get_override_tells_it(kw) {
        let all = planted(&kw).await;

        let reply = list(&kw, "namespaceName=email.send").await;

        assert_eq!(ids(&reply), all);
        for known in reply.v1_body()["overrides"].as_array().unwrap() {
            let identifier = known["identifier"].as_str().unwrap();
            let query = format!("namespaceName=email.send&identifier={identifier}");
            assert_eq!(known, kw.v1_get("ratelimits.getOverride", &query).await.v1_body());
        }
    }

    async fn deleted_ones_are_neither_told_nor_counted(kw) {
        planted(&kw).await;
        kw.v1("ratelimits.deleteOverride", json!({ "namespaceName": "email.send", "identifier": "user_2" })).await.v1_body();
        let reply = list(&kw, "namespaceName=email.send").await;
        assert_eq!((ids(&reply).len(), &reply.body["total"]), (3, &json!(3)));
    }

    async fn the_namespace_goes_by_its_id_before_its_name_and_must_be_there(kw) {
        planted(&kw).await;
        let id = kw.find_namespace_id("sms.send").await;

        assert_eq!(list(&kw, &format!("namespaceId={id}&namespaceName=email.send")).await.v1_body()["total"], 1);
        assert_eq!(
            list(&kw, "namespaceId=&namespaceName=").await.assert_v1_error(400, "BAD_REQUEST"),
            "You must provide a namespaceId or a namespaceName",
        );
        list(&kw, "namespaceName=nowhere").await.assert_v1_error_about(404, "NOT_FOUND", &["nowhere"]);
    }
}
