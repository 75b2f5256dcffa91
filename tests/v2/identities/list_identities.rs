use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn create(kw: &Keyward, external_id: &str) -> String {
    let request = json!({ "externalId": external_id });
    kw.v2("identities.createIdentity", request).await.text_of("identityId")
}

fn names(reply: &Reply) -> Vec<String> {
    let name = |item: &Value| item["externalId"].as_str().unwrap().to_owned();
    let mut names: Vec<_> = reply.data().as_array().unwrap().iter().map(name).collect();
    names.sort();
    names
}

on_both_stacks! {
    async fn there_may_be_none(kw) {
        let reply = kw.v2("identities.listIdentities", json!({})).await;

        assert_eq!(*reply.data(), json!([]));
        assert_eq!(reply.body["pagination"], json!({ "hasMore": false }));
    }

    async fn pages_go_by_id_and_lead_to_each_other(kw) {
        let mut ids = Vec::new();
        for n in 0..5 {
            ids.push(create(&kw, &format!("user_{n}")).await);
        }
        ids.sort();

        let items = kw.list_all_pages("identities.listIdentities", json!({})).await;

        let told: Vec<_> = items.iter().map(|item| item["id"].as_str().unwrap()).collect();
        assert_eq!(told, ids);
    }

    async fn a_search_looks_through_id_and_external_id_in_whatever_case(kw) {
        let id = create(&kw, "Acme.Org").await;
        create(&kw, "other").await;
        kw.create_key(json!({ "externalId": "made_by_a_key" })).await;
        let found = async |search: &str| {
            names(&kw.v2("identities.listIdentities", json!({ "search": search })).await)
        };

        assert_eq!(found(" acme.o ").await, ["Acme.Org"]);
        assert_eq!(found(&id.to_uppercase()).await, ["Acme.Org"]);
        assert_eq!(found("BY_A").await, ["made_by_a_key"]);
        assert!(found("acme%").await.is_empty());
        assert_eq!(found(" ").await.len(), 3);
    }

    async fn a_root_key_is_told_those_that_it_may_read(kw) {
        let mut mine = Vec::new();
        for n in 0..6 {
            let id = create(&kw, &format!("user_{n}")).await;
            if n % 2 == 0 {
                mine.push(format!("identity.{id}.read_identity"));
            }
        }
        let root_key = kw.create_root_key_with(mine).await;
        let list = async |request| kw.v2_as(&root_key, "identities.listIdentities", request).await;

        let all = list(json!({})).await;
        let first = list(json!({ "limit": 2 })).await;
        let cursor = first.body["pagination"]["cursor"].clone();
        let second = list(json!({ "limit": 2, "cursor": cursor })).await;

        assert_eq!(names(&all), ["user_0", "user_2", "user_4"]);
        assert_eq!((names(&first).len(), names(&second).len()), (2, 1));
        assert_eq!(second.body["pagination"], json!({ "hasMore": false }));
    }
}
