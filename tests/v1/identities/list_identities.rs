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
    async fn an_identity_is_listed_with_its_limits_and_without_its_meta(kw) {
        let id = create(&kw, "user_1").await;

        for query in ["", "environment=default"] {
            let reply = list(&kw, query).await;

            let limits = json!([{ "name": "one", "limit": 1, "duration": 60_000 }]);
            let listed = json!({ "id": id, "externalId": "user_1", "ratelimits": limits });
            assert_eq!(*reply.v1_body(), json!({ "identities": [listed], "total": 1 }));
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
            ask(named, query).await.assert_v1_error_about(403, "INSUFFICIENT_PERMISSIONS", &["identity.default.read_identity"]);
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
