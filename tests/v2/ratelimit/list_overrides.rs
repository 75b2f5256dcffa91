use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, NOON};

/// A namespace with this many overrides; their ids, sorted.
async fn filled(kw: &Keyward, count: usize) -> Vec<String> {
    kw.check_limit("email.send", "somebody", json!({})).await.data();
    let mut ids = Vec::new();
    for n in 0..count {
        ids.push(kw.set_override("email.send", &format!("user_{n}"), json!({})).await);
    }
    ids.sort();
    ids
}

/// The whole answer but for its meta.
async fn page(kw: &Keyward, mut request: Value) -> Value {
    request["namespace"] = json!("email.send");
    let reply = kw.v2("ratelimit.listOverrides", request).await;
    reply.data();
    let mut body = reply.body.clone();
    body.as_object_mut().unwrap().remove("meta");
    body
}

fn ids(page: &Value) -> Vec<&str> {
    let items = page["data"].as_array().unwrap().iter();
    items.map(|item| item["overrideId"].as_str().unwrap()).collect()
}

on_both_stacks! {
    async fn every_field_is_told_of_expired_ones_too(kw) {
        filled(&kw, 0).await;
        let id = kw.set_override("email.send", "user_*", json!({ "limit": 0, "duration": 1000, "expires": 1 })).await;

        assert_eq!(
            page(&kw, json!({})).await["data"],
            json!([{ "overrideId": id, "identifier": "user_*", "limit": 0, "duration": 1000, "expires": 1 }]),
        );
    }

    async fn pages_go_by_id_and_lead_to_each_other(kw) {
        let all = filled(&kw, 5).await;

        let (mut told, mut sizes, mut cursor) = (Vec::new(), Vec::new(), json!(""));
        loop {
            let page = page(&kw, json!({ "limit": 2, "cursor": cursor })).await;
            told.extend(ids(&page).into_iter().map(str::to_owned));
            sizes.push(ids(&page).len());
            if page["pagination"] == json!({ "hasMore": false }) {
                break;
            }
            assert_eq!(page["pagination"]["hasMore"], true);
            cursor = page["pagination"]["cursor"].clone();
        }

        assert_eq!((told, sizes), (all, vec![2, 2, 1]));
    }

    async fn the_last_page_may_be_full(kw) {
        let all = filled(&kw, 2).await;
        let page = page(&kw, json!({ "limit": 2 })).await;
        assert_eq!(ids(&page), all);
        assert_eq!(page["pagination"], json!({ "hasMore": false }));
    }

    async fn a_page_has_ten_unless_said(kw) {
        let all = filled(&kw, 11).await;
        let page = page(&kw, json!({})).await;
        assert_eq!(ids(&page), all[..10]);
        assert_eq!(page["pagination"], json!({ "hasMore": true, "cursor": all[10] }));
    }

    async fn any_text_is_a_cursor(kw) {
        let all = filled(&kw, 1).await;
        assert_eq!(ids(&page(&kw, json!({ "cursor": "' OR 1=1 --" })).await), all);
        assert!(ids(&page(&kw, json!({ "cursor": "zzz" })).await).is_empty());
    }

    async fn a_namespace_that_is_missing_precedes_the_permission(kw) {
        let nobody = kw.create_root_key(["ratelimit.*.list_overrides"]).await;
        let request = json!({ "namespace": "email.send" });
        let list = async |root_key: &str| { kw.v2_as(root_key, "ratelimit.listOverrides", request.clone()).await };

        list(&nobody).await.assert_error(404, "ratelimit_namespace_not_found");
        filled(&kw, 1).await;
        list(&nobody).await.assert_error_about(403, "insufficient_permissions", &["ratelimit.*.read_override"]);
        kw.delete_namespace("email.send").await;
        list(&kw.root_key).await.assert_error(404, "ratelimit_namespace_not_found");
    }

    async fn overrides_of_another_namespace_are_not_listed(kw) {
        let all = filled(&kw, 1).await;
        kw.check_limit("other", "user_1", json!({})).await.data();
        kw.set_override("other", "user_1", json!({ "expires": NOON.0 })).await;
        assert_eq!(ids(&page(&kw, json!({})).await), all);
    }
}
