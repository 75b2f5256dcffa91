//! Lists: empty, in pages that lead to each other, and of one workspace.

use serde_json::{Value, json};

use super::{World, with};
use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::version::Version::V1;

/// A list: its operation in each version, the field that holds the items in version 1, the names of the id, its request,
/// and how an item is created.
struct List {
    v1: Option<(&'static str, &'static str)>,
    v2: &'static str,
    ids: (&'static str, &'static str),
    requests: (Value, Value),
    create: (&'static str, Value),
}

fn lists() -> Vec<List> {
    let api = json!({ "apiId": "{api}" });
    let limit =
        json!({ "namespace": "{namespace}", "identifier": "{n}", "limit": 1, "duration": 1000 });
    vec![
        List {
            v1: Some(("apis.listKeys", "keys")),
            v2: "apis.listKeys",
            ids: ("id", "keyId"),
            requests: (api.clone(), api.clone()),
            create: ("keys.createKey", api),
        },
        List {
            v1: Some(("identities.listIdentities", "identities")),
            v2: "identities.listIdentities",
            ids: ("id", "id"),
            requests: (json!({}), json!({})),
            create: ("identities.createIdentity", json!({ "externalId": "user_{n}" })),
        },
        List {
            v1: Some(("ratelimits.listOverrides", "overrides")),
            v2: "ratelimit.listOverrides",
            ids: ("id", "overrideId"),
            requests: (
                json!({ "namespaceName": "{namespace}" }),
                json!({ "namespace": "{namespace}" }),
            ),
            create: ("ratelimit.setOverride", limit),
        },
        List {
            v1: None,
            v2: "permissions.listPermissions",
            ids: ("id", "id"),
            requests: (json!({}), json!({})),
            create: ("permissions.createPermission", json!({ "slug": "docs.{n}", "name": "docs" })),
        },
        List {
            v1: None,
            v2: "permissions.listRoles",
            ids: ("id", "id"),
            requests: (json!({}), json!({})),
            create: (
                "permissions.createRole",
                json!({ "name": "role {n}", "permissions": ["docs.read"] }),
            ),
        },
    ]
}

/// An API and a namespace to list from, and things elsewhere that are not in the lists.
async fn place(kw: &Keyward) -> World {
    let api = kw.create_api().await;
    kw.create_key(json!({})).await;
    for namespace in ["email.send", "sms.send"] {
        kw.check_limit(namespace, "nobody", json!({ "cost": 0 })).await.data();
    }
    kw.set_override("sms.send", "user_1", json!({})).await;
    World(vec![("{api}", api), ("{namespace}", "email.send".to_owned())])
}

async fn create_items(kw: &Keyward, place: &World, list: &List, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..count {
        let request = World(vec![("{n}", n.to_string())]).request(&place.request(&list.create.1));
        let reply = kw.v2(list.create.0, request).await;
        let id = reply.data().as_object().unwrap().iter().find(|(name, _)| name.ends_with("Id"));
        ids.push(id.unwrap().1.as_str().unwrap().to_owned());
    }
    ids.sort();
    ids
}

fn ids(items: &Value, id: &str) -> Vec<String> {
    items.as_array().unwrap().iter().map(|item| item[id].as_str().unwrap().to_owned()).collect()
}

on_both_stacks! {
    async fn pages_of_version_2_go_by_id_and_lead_to_each_other(kw) {
        for list in lists() {
            let kw = Keyward::start(kw.stack).await;
            let place = place(&kw).await;
            let request = place.request(&list.requests.1);
            let empty = kw.v2(list.v2, request.clone()).await;
            assert_eq!((empty.data(), &empty.body["pagination"]), (&json!([]), &json!({ "hasMore": false })), "{empty}");

            let all = create_items(&kw, &place, &list, 5).await;

            assert_eq!(ids(&json!(kw.list_all_pages(list.v2, request.clone()).await), list.ids.1), all, "{}", list.v2);
            if list.requests.1 == json!({}) {
                let stranger = kw.create_other_workspace().await;
                assert_eq!(*kw.v2_as(&stranger, list.v2, request).await.data(), json!([]), "{}", list.v2);
            }
        }
    }

    async fn pages_of_version_1_begin_behind_the_last_id_and_the_last_has_no_cursor(kw) {
        for list in lists() {
            let Some((operation, field)) = list.v1 else { continue };
            let kw = Keyward::start(kw.stack).await;
            let place = place(&kw).await;
            let page = async |fields: Value| {
                kw.call(V1, &kw.root_key, operation, with(place.request(&list.requests.0), fields)).await
            };
            assert_eq!(*page(json!({})).await.v1_body(), json!({ field: [], "total": 0 }), "{operation}");
            let all = create_items(&kw, &place, &list, 4).await;

            let first = page(json!({ "limit": 2 })).await;
            let cursor = first.v1_body()["cursor"].clone();
            let second = page(json!({ "limit": 2, "cursor": cursor })).await;
            let (three, four) = (page(json!({ "limit": 3 })).await, page(json!({ "limit": 4 })).await);

            assert_eq!(*page(json!({ "cursor": "zzz" })).await.v1_body(), json!({ field: [], "total": 4 }), "{operation}");
            assert_eq!(cursor, all[1]);
            assert_eq!([ids(&first.body[field], "id"), ids(&second.v1_body()[field], "id")].concat(), all);
            for (page, count, has_cursor) in [(&first, 2, true), (&second, 2, false), (&three, 3, true), (&four, 4, false)] {
                assert_eq!((ids(&page.v1_body()[field], "id").len(), &page.body["total"]), (count, &json!(4)), "{page}");
                assert_eq!(page.body.get("cursor").is_some_and(Value::is_string), has_cursor, "{page}");
            }
            if list.requests.0 == json!({}) {
                let stranger = kw.create_other_workspace().await;
                let elsewhere = kw.call(V1, &stranger, operation, json!({})).await;
                assert_eq!(*elsewhere.v1_body(), json!({ field: [], "total": 0 }), "{elsewhere}");
            }
        }
    }

    async fn lists_of_version_1_without_pages_tell_each_item_as_it_is_told_alone(kw) {
        for (list, get, id, create, requests) in [
            (
                "permissions.listPermissions", "permissions.getPermission", "permissionId", "permissions.createPermission",
                [json!({ "name": "docs.read" }), json!({ "name": "Write", "slug": "docs.write", "description": "all of it" })],
            ),
            (
                "permissions.listRoles", "permissions.getRole", "roleId", "permissions.createRole",
                [json!({ "name": "editor" }), json!({ "name": "reader", "description": "all of it" })],
            ),
        ] {
            assert_eq!(*kw.v1_get(list, "").await.v1_body(), json!([]), "{list}");
            let mut created = Vec::new();
            for request in requests {
                created.push(kw.v1(create, request).await.v1_body()[id].as_str().unwrap().to_owned());
            }
            created.sort();

            let reply = kw.v1_get(list, "").await;

            assert_eq!(ids(reply.v1_body(), "id"), created);
            for item in reply.v1_body().as_array().unwrap() {
                let query = format!("{id}={}", item["id"].as_str().unwrap());
                assert_eq!(item, kw.v1_get(get, &query).await.v1_body());
            }
            let stranger = kw.create_other_workspace().await;
            assert_eq!(*kw.v1_get_as(&stranger, list, "").await.v1_body(), json!([]), "{list}");
        }
    }
}
