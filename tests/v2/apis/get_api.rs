use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn an_api_is_told_by_id_and_name(kw) {
        let id = kw.create_api().await;

        let reply = kw.v2("apis.getApi", json!({ "apiId": id })).await;

        assert_eq!(*reply.data(), json!({ "id": id, "name": "an API" }));
    }

    async fn what_was_never_made_is_not_found(kw) {
        let reply = kw.v2("apis.getApi", json!({ "apiId": "api_nowhere" })).await;

        let error = reply.assert_error(404, "api_not_found");
        assert_eq!(error["title"], "Not Found");
        assert!(error["detail"].as_str().unwrap().contains("api_nowhere"), "{error}");
    }

    async fn letter_case_matters_in_an_id(kw) {
        let id = kw.create_api().await;

        let reply = kw.v2("apis.getApi", json!({ "apiId": id.to_uppercase() })).await;

        reply.assert_error(404, "api_not_found");
    }

    async fn a_deleted_api_is_not_found(kw) {
        let id = kw.create_api().await;
        kw.v2("apis.deleteApi", json!({ "apiId": id })).await.data();

        let reply = kw.v2("apis.getApi", json!({ "apiId": id })).await;

        reply.assert_error(404, "api_not_found");
    }

    async fn a_permission_for_one_api_shows_no_other(kw) {
        let (own, other) = (kw.create_api().await, kw.create_api().await);
        let root_key = kw.create_root_key([&*format!("api.{own}.read_api")]).await;

        let shown = kw.v2_as(&root_key, "apis.getApi", json!({ "apiId": own })).await;
        let refused = kw.v2_as(&root_key, "apis.getApi", json!({ "apiId": other })).await;

        assert_eq!(shown.data()["id"], own);
        let error = refused.assert_error(403, "insufficient_permissions");
        let detail = error["detail"].as_str().unwrap();
        assert!(detail.contains("api.*.read_api"), "{detail}");
        assert!(detail.contains(&format!("api.{other}.read_api")), "{detail}");
    }

    async fn who_may_not_read_does_not_learn_what_exists(kw) {
        let root_key = kw.create_root_key(["api.*.create_api"]).await;
        let id = kw.create_api().await;

        let real = kw.v2_as(&root_key, "apis.getApi", json!({ "apiId": id })).await;
        let none = kw.v2_as(&root_key, "apis.getApi", json!({ "apiId": "api_nowhere" })).await;

        real.assert_error(403, "insufficient_permissions");
        none.assert_error(403, "insufficient_permissions");
    }
}
