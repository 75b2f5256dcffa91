//! Trying requests that cost credits.

use foundation::id::KeyId;
use serde_json::{Value, json};

use super::super::Browser;
use super::create;
use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Stack};

/// Creates a policy whose requests cost three credits, and a key for it with these fields. Returns the path of the
/// policy, and the key.
async fn create_policy(owner: &mut Browser<'_>, fields: Value) -> (String, IssuedKey) {
    let kw = owner.kw;
    let api = kw.create_api().await;
    let (path, _) = create(owner, "edge", &api).await;
    let change = json!({ "policyId": "edge", "rules": [{ "path": "/search", "cost": 3 }] });
    kw.v2("gateways.updatePolicy", change).await.data();
    (path, kw.create_key_in(&api, fields).await)
}

/// Returns the page that says what a request with this key would be answered.
async fn preview(owner: &mut Browser<'_>, path: &str, key: &IssuedKey) -> String {
    let fields = [("method", "POST"), ("target", "/search"), ("key", key.key.as_str())];
    let page = owner.post(&format!("{path}/try"), &fields).await;
    assert_eq!(page.status, 200, "{}", page.text);
    page.text
}

on_both_stacks! {
    async fn request_that_costs_all_credits_is_allowed_and_one_more_is_not(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (path, key) = create_policy(&mut owner, json!({ "credits": { "remaining": 3 } })).await;

        let page = preview(&mut owner, &path, &key).await;
        assert!(page.contains("Allowed") && page.contains("<dd>0 after this request</dd>"), "{page}");

        kw.verify(&key.key).await.assert_code("VALID");
        let page = preview(&mut owner, &path, &key).await;
        assert!(page.contains("Rejected") && page.contains("USAGE_EXCEEDED"), "{page}");
    }
}

#[tokio::test]
async fn metered_key_is_not_found_when_its_deletion_is_not_announced() {
    let kw = Keyward::start(Stack::Embedded).await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    let (path, key) = create_policy(&mut owner, json!({ "credits": { "remaining": 8 } })).await;
    let page = preview(&mut owner, &path, &key).await;
    assert!(page.contains("<dd>5 after this request</dd>"), "{page}");

    let mut tx = kw.store().begin().await.unwrap();
    tx.delete_key(&KeyId::from(key.id.as_str()), kw.clock.now()).await.unwrap();
    tx.commit().await.unwrap();

    let page = preview(&mut owner, &path, &key).await;
    assert!(page.contains("<span class=\"badge bad\">NOT_FOUND</span>"), "{page}");
}
