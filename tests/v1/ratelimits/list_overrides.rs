use domain::root_keys::default_workspace;
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
    async fn there_may_be_none(kw) {
        kw.check_limit("email.send", "nobody", json!({})).await.data();

        let reply = list(&kw, "namespaceName=email.send").await;

        assert_eq!(*reply.v1_body(), json!({ "overrides": [], "total": 0 }));
    }

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

    async fn a_page_begins_behind_the_last_id_that_was_told_and_the_last_has_no_cursor(kw) {
        let all = planted(&kw).await;

        let first = list(&kw, "namespaceName=email.send&limit=2").await;
        let cursor = first.v1_body()["cursor"].as_str().unwrap();
        let query = format!("namespaceName=email.send&limit=2&cursor={cursor}");
        let second = list(&kw, &query).await;
        let three = list(&kw, "namespaceName=email.send&limit=3").await;
        let beyond = list(&kw, "namespaceName=email.send&cursor=zzz").await;

        assert_eq!(cursor, all[1]);
        assert_eq!([ids(&first), ids(&second)].concat(), all);
        assert_eq!(second.body.get("cursor"), None);
        assert_eq!((ids(&three).len(), three.v1_body()["cursor"].is_string()), (3, true));
        assert_eq!(*beyond.v1_body(), json!({ "overrides": [], "total": 4 }));
        for page in [first, second, three] {
            assert_eq!(page.v1_body()["total"], 4);
        }
    }

    async fn deleted_ones_are_neither_told_nor_counted(kw) {
        planted(&kw).await;
        let request = json!({ "namespaceName": "email.send", "identifier": "user_2" });

        kw.v1("ratelimits.deleteOverride", request).await.v1_body();

        let reply = list(&kw, "namespaceName=email.send").await;
        assert_eq!((ids(&reply).len(), &reply.body["total"]), (3, &json!(3)));
    }

    async fn the_namespace_goes_by_its_id_before_its_name_and_must_be_there(kw) {
        planted(&kw).await;
        let mut reader = kw.store().read().await.unwrap();
        let found = reader.find_namespace(&default_workspace(), "sms.send").await.unwrap();
        let id = found.unwrap().id;
        drop(reader);

        let both = list(&kw, &format!("namespaceId={id}&namespaceName=email.send")).await;
        let neither = list(&kw, "namespaceId=&namespaceName=").await;
        let missing = list(&kw, "namespaceName=nowhere").await;

        assert_eq!(both.v1_body()["total"], 1);
        assert_eq!(
            neither.assert_v1_error(400, "BAD_REQUEST"),
            "You must provide a namespaceId or a namespaceName"
        );
        let message = missing.assert_v1_error(404, "NOT_FOUND");
        assert!(message.contains("nowhere"), "{message}");
    }
}
