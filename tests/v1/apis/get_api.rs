use domain::root_keys::default_workspace;
use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn get(kw: &Keyward, root_key: &str, api: &str) -> Reply {
    kw.v1_get_as(root_key, "apis.getApi", &format!("apiId={api}")).await
}

on_both_stacks! {
    async fn an_api_is_told_by_id_workspace_and_name(kw) {
        let id = kw.create_api().await;

        let reply = get(&kw, &kw.root_key, &id).await;

        let told = json!({ "id": id, "workspaceId": default_workspace(), "name": "an API" });
        assert_eq!(*reply.v1_body(), told);
    }

    async fn a_deleted_api_is_not_found_and_the_message_names_it(kw) {
        let id = kw.create_api().await;
        kw.v1("apis.deleteApi", json!({ "apiId": id })).await.v1_body();

        let reply = get(&kw, &kw.root_key, &id).await;

        let message = reply.assert_v1_error(404, "NOT_FOUND");
        assert!(message.contains(&id), "{message}");
    }

    async fn a_permission_for_one_api_shows_no_other(kw) {
        let (own, other) = (kw.create_api().await, kw.create_api().await);
        let root_key = kw.create_root_key([&*format!("api.{own}.read_api")]).await;

        let shown = get(&kw, &root_key, &own).await;
        let refused = get(&kw, &root_key, &other).await;

        assert_eq!(shown.v1_body()["id"], own);
        let message = refused.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        assert!(message.contains(&format!("api.{other}.read_api")), "{message}");
    }

    async fn who_may_not_read_does_not_learn_what_exists(kw) {
        let root_key = kw.create_root_key(["api.*.create_api"]).await;
        let id = kw.create_api().await;

        for api in [&*id, "api_nowhere"] {
            let reply = get(&kw, &root_key, api).await;
            reply.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        }
    }
}
