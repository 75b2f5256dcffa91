use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn list(kw: &Keyward, query: &str) -> Reply {
    kw.v1_get("identities.listIdentities", query).await
}

async fn create(kw: &Keyward, external_id: &str) -> String {
    let request = json!({
        "externalId": external_id, "meta": { "plan": "pro" },
        "ratelimits": [{ "name": "one", "limit": 1, "duration": 60_000 }],
    });
    let reply = kw.v1("identities.createIdentity", request).await;
    reply.v1_body()["identityId"].as_str().unwrap().to_owned()
}

fn ids(reply: &Reply) -> Vec<String> {
    let id = |identity: &Value| identity["id"].as_str().unwrap().to_owned();
    reply.v1_body()["identities"].as_array().unwrap().iter().map(id).collect()
}

on_both_stacks! {
    async fn there_may_be_none(kw) {
        let reply = list(&kw, "").await;

        assert_eq!(*reply.v1_body(), json!({ "identities": [], "total": 0 }));
    }

    async fn an_identity_is_listed_with_its_limits_and_without_its_meta(kw) {
        let id = create(&kw, "user_1").await;

        for query in ["", "environment=default"] {
            let reply = list(&kw, query).await;

            let limits = json!([{ "name": "one", "limit": 1, "duration": 60_000 }]);
            let listed = json!({ "id": id, "externalId": "user_1", "ratelimits": limits });
            assert_eq!(*reply.v1_body(), json!({ "identities": [listed], "total": 1 }));
        }
    }

    async fn a_page_begins_behind_the_last_id_that_was_told_and_the_last_has_no_cursor(kw) {
        let mut all = Vec::new();
        for n in 0..4 {
            all.push(create(&kw, &format!("user_{n}")).await);
        }
        all.sort();

        let first = list(&kw, "limit=2").await;
        let cursor = first.v1_body()["cursor"].as_str().unwrap();
        let second = list(&kw, &format!("limit=2&cursor={cursor}")).await;
        let three = list(&kw, "limit=3").await;
        let beyond = list(&kw, "cursor=zzz").await;

        assert_eq!(cursor, all[1]);
        assert_eq!([ids(&first), ids(&second)].concat(), all);
        assert_eq!(second.body.get("cursor"), None);
        assert_eq!((ids(&three).len(), three.v1_body()["cursor"].is_string()), (3, true));
        assert_eq!(*beyond.v1_body(), json!({ "identities": [], "total": 4 }));
        for page in [first, second, three] {
            assert_eq!(page.v1_body()["total"], 4);
        }
    }

    async fn a_permission_for_the_environment_of_all_lists_them_and_one_for_an_identity_does_not(kw) {
        let id = create(&kw, "user_1").await;
        let ask = async |named: &str, query: &str| {
            let root_key = kw.create_root_key([&*format!("identity.{named}.read_identity")]).await;
            kw.v1_get_as(&root_key, "identities.listIdentities", query).await
        };

        for query in ["", "environment=default"] {
            assert_eq!(ids(&ask("default", query).await), [&*id]);
        }
        let itself = format!("environment={id}");
        for (named, query) in [(&*id, ""), (&id, &itself), ("another", "environment=another")] {
            let message = ask(named, query).await.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
            assert!(message.contains("identity.default.read_identity"), "{message}");
        }
    }

    async fn the_total_is_of_those_that_are_there_in_the_workspace(kw) {
        let gone = create(&kw, "user_1").await;
        create(&kw, "user_2").await;
        let stranger = kw.create_other_workspace().await;

        kw.v1("identities.deleteIdentity", json!({ "identityId": gone })).await.v1_body();

        assert_eq!(list(&kw, "").await.v1_body()["total"], 1);
        let elsewhere = kw.v1_get_as(&stranger, "identities.listIdentities", "").await;
        assert_eq!(*elsewhere.v1_body(), json!({ "identities": [], "total": 0 }));
    }
}
