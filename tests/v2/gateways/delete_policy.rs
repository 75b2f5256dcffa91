use domain::audit;
use domain::root_keys::default_workspace;
use serde_json::json;
use store::AuditFilter;

use super::create;
use crate::dashboard::{Browser, redirect_path, workspace_path};
use crate::on_both_stacks;
use crate::support::Reply;

on_both_stacks! {
    async fn changes_are_recorded_and_undone(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let created = create(&kw, json!({ "rules": [{ "path": "/a" }] })).await;
        let id = created.text_of("policyId");
        let policy = json!({ "policyId": id });
        let before = kw.v2("gateways.getPolicy", policy.clone()).await.data().clone();
        let change = json!({ "policyId": id, "name": "gate", "rules": [] });
        kw.v2("gateways.updatePolicy", change).await.data();
        redirect_path(&undo(&mut owner, "gatewayPolicy.update").await);

        let after = kw.v2("gateways.getPolicy", policy.clone()).await.data().clone();
        assert_eq!((&after["name"], &after["rules"]), (&before["name"], &before["rules"]));
        kw.v2("gateways.deletePolicy", policy.clone()).await.data();
        kw.v2("gateways.getPolicy", policy.clone()).await.assert_error(404, "gateway_policy_not_found");
        redirect_path(&undo(&mut owner, "gatewayPolicy.delete").await);
        kw.v2("gateways.getPolicy", policy.clone()).await.data();

        kw.v2("gateways.rotateSecret", policy).await.data();
        assert_eq!(
            kw.list_audit_events(&id).await,
            [
                "gatewayPolicy.create", "gatewayPolicy.delete", "gatewayPolicy.restore",
                "gatewayPolicy.rotateSecret", "gatewayPolicy.update", "gatewayPolicy.update",
            ]
        );
    }

    async fn restore_is_rejected_when_the_name_is_in_use(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let id = create(&kw, json!({})).await.text_of("policyId");
        kw.v2("gateways.deletePolicy", json!({ "policyId": id })).await.data();
        create(&kw, json!({})).await.data();

        let refused = undo(&mut owner, "gatewayPolicy.delete").await;

        assert!(refused.text.contains("a gateway policy named edge already exists"));
    }
}

/// Undoes the latest entry of an event.
async fn undo(owner: &mut Browser<'_>, event: &str) -> Reply {
    owner.kw.clock.advance_ms(1);
    let filter =
        AuditFilter { event: Some(event.to_owned()), rows_max: 1, ..AuditFilter::default() };
    let entries = audit::list(&owner.kw.app.context, &default_workspace(), &filter).await.unwrap();
    let path = workspace_path(&format!("/audit/{}/undo", entries[0].id));
    owner.post(&path, &[]).await
}
