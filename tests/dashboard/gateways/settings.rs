//! Changing the settings of a policy.

use serde_json::{Value, json};

use super::super::audit::{entry, tick};
use super::super::{Browser, between, redirect_path};
use super::{USUAL, create};
use crate::on_both_stacks;
use crate::support::Keyward;

async fn policy(kw: &Keyward) -> Value {
    kw.v2("gateways.getPolicy", json!({ "policyId": "edge" })).await.data().clone()
}

/// Returns the original values that a settings page has.
async fn original(visitor: &mut Browser<'_>, path: &str) -> String {
    let page = visitor.get(&format!("{path}/settings")).await.text;
    between(&page, "name=\"was\" value=\"", "\"").replace("&#34;", "\"").replace("&#38;", "&")
}

/// Saves the settings; these fields replace the usual ones.
async fn save(
    visitor: &mut Browser<'_>,
    path: &str,
    was: &str,
    fields: &[(&str, &str)],
) -> crate::support::Reply {
    let usual = USUAL.iter().filter(|(name, _)| fields.iter().all(|(known, _)| known != name));
    let all: Vec<_> = fields.iter().chain(usual).copied().chain([("was", was)]).collect();
    visitor.post(&format!("{path}/settings"), &all).await
}

on_both_stacks! {
    async fn only_changed_fields_are_stored(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let (path, _) = create(&mut owner, "edge", &api).await;
        let was = original(&mut owner, &path).await;
        let others = json!({
            "policyId": "edge", "onFailure": "text", "rules": [{ "path": "/kept" }],
            "identityHeaders": { "headers": ["keyward-key-id"], "signed": false },
        });
        kw.v2("gateways.updatePolicy", others).await.data();

        let fields = [("name", "edge"), ("api", api.as_str()), ("keyFrom", "query:key"), ("resource", "https://a.example")];
        let saved = redirect_path(&save(&mut owner, &path, &was, &fields).await);

        assert!(owner.get(&saved).await.text.contains("Policy updated"));
        let found = policy(&kw).await;
        assert_eq!(found["keyFrom"], json!(["query:key"]));
        assert_eq!(found["resource"], "https://a.example");
        assert_eq!(found["onFailure"], "text");
        assert_eq!(found["rules"], json!([{ "path": "/kept" }]));
        assert_eq!(found["identityHeaders"]["headers"], json!(["keyward-key-id"]));
    }

    async fn settings_show_the_policy_and_saving_them_changes_nothing(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let (path, _) = create(&mut owner, "edge", &api).await;
        let change = json!({
            "policyId": "edge",
            "rules": [{ "methods": ["GET"], "path": "/a", "ratelimits": [{ "name": "all", "limit": 7, "duration": 60_000 }] }],
            "namespaces": [{ "namespace": "mail", "mode": "shadow" }],
        });
        kw.v2("gateways.updatePolicy", change).await.data();
        let before = kw.count_audit_entries().await;
        let page = owner.get(&format!("{path}/settings")).await.text;
        for part in [
            "name=\"rule-methods\" value=\"GET\"", "name=\"limit-name\"", "value=\"7\"", "value=\"min\" selected",
            "name=\"namespace\"", "value=\"shadow\" selected", "value=\"problem+json\" selected",
        ] {
            assert!(page.replace("&#43;", "+").contains(part), "{part}: {page}");
        }

        let was = original(&mut owner, &path).await;
        let fields = [
            ("name", "edge"), ("api", api.as_str()),
            ("rule-methods", "GET"), ("rule-path", "/a"), ("rule-permissions", ""), ("rule-cost", ""), ("rule-tags", ""),
            ("limit-rule", "0"), ("limit-name", "all"), ("limit-cost", ""), ("limit-limit", "7"),
            ("limit-window", "60"), ("limit-window-unit", "s"),
            ("namespace", "mail"), ("namespace-limit", ""), ("namespace-window", ""),
            ("namespace-window-unit", "s"), ("namespace-mode", "shadow"), ("namespace-refused", "ignore"),
        ];
        let saved = redirect_path(&save(&mut owner, &path, &was, &fields).await);

        assert!(owner.get(&saved).await.text.contains("No changes to save"));
        assert_eq!(kw.count_audit_entries().await, before);
    }

    async fn invalid_settings_are_told_and_kept(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let (path, _) = create(&mut owner, "edge", &api).await;
        create(&mut owner, "other", &api).await;
        let was = original(&mut owner, &path).await;
        let before = policy(&kw).await;

        for (fields, words) in [
            ([("name", "other"), ("api", api.as_str())], "Name is already in use"),
            ([("name", ""), ("api", api.as_str())], "Name must have 1 to 128"),
            ([("name", "gwp_x"), ("api", api.as_str())], "Name must not begin with"),
            ([("name", "edge"), ("resource", "a")], "Select at least one API."),
        ] {
            let page = save(&mut owner, &path, &was, &fields).await;
            assert_eq!(page.status, 422, "{words}");
            assert!(page.text.contains(words) && page.text.contains("Save changes"), "{}", page.text);
        }
        let broken = save(&mut owner, &path, "{", &[("name", "b"), ("api", &api)]).await;
        assert_eq!(broken.status, 422);
        assert!(broken.text.contains("The form is incomplete"));
        assert_eq!(policy(&kw).await, before);
    }

    async fn a_change_is_undone_in_the_audit_log(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let (path, _) = create(&mut owner, "edge", &api).await;
        let was = original(&mut owner, &path).await;
        tick(&kw);
        let fields = [("name", "edge"), ("api", api.as_str()), ("keyFrom", "query:key")];
        redirect_path(&save(&mut owner, &path, &was, &fields).await);

        let entry = entry(&mut owner, "gatewayPolicy.update").await;
        let page = owner.get(&entry).await.text;
        assert!(page.contains("query:key") && page.contains(&path), "{page}");
        tick(&kw);
        redirect_path(&owner.post(&format!("{entry}/undo"), &[]).await);

        assert_eq!(policy(&kw).await["keyFrom"], json!(["authorization:bearer", "header:x-api-key"]));
    }

    async fn policy_that_no_form_has_room_for_is_not_edited_in_one(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let (path, _) = create(&mut owner, "edge", &api).await;
        let rules = vec![json!({ "path": format!("/{}", "a".repeat(1000)) }); 30];
        kw.v2("gateways.updatePolicy", json!({ "policyId": "edge", "rules": rules })).await.data();

        let page = owner.get(&format!("{path}/settings")).await.text;

        assert!(page.contains("too large to edit here") && !page.contains("name=\"rule-path\""));
        assert_eq!(owner.get(&path).await.status, 200);
    }
}
