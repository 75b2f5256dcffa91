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
    async fn a_search_looks_through_id_and_external_id_in_whatever_case(kw) {
        let id = create(&kw, "Acme.Org").await;
        create(&kw, "other").await;
        kw.create_key(json!({ "externalId": "made_by_a_key" })).await;
        let found = async |search: &str| { names(&kw.v2("identities.listIdentities", json!({ "search": search })).await) };

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

        assert_eq!(names(&list(json!({})).await), ["user_0", "user_2", "user_4"]);
        let first = list(json!({ "limit": 2 })).await;
        let cursor = first.body["pagination"]["cursor"].clone();
        let second = list(json!({ "limit": 2, "cursor": cursor })).await;

        assert_eq!((names(&first).len(), names(&second).len()), (2, 1));
        assert_eq!(second.body["pagination"], json!({ "hasMore": false }));
    }
}
