use axum::body::Body;
use serde_json::{Value, json};
use store::Store;

use crate::on_both_stacks;
use crate::support::{NOON, post};

on_both_stacks! {
    async fn a_name_is_kept_to_the_letter(kw) {
        let name = " Zahlungen \"à la carte\"\\支付 🦀\u{301} ' -- ; $1 ";
        let created = kw.v2("apis.createApi", json!({ "name": name })).await;
        assert_eq!(kw.v2("apis.getApi", json!({ "apiId": created.text_of("apiId") })).await.data()["name"], name);
    }

    async fn a_names_length_is_counted_in_characters(kw) {
        kw.v2("apis.createApi", json!({ "name": "🦀".repeat(256) })).await.data();
        kw.v2("apis.createApi", json!({ "name": "🦀".repeat(257) })).await.assert_field_error("/properties/name/maxLength");
        kw.v2("apis.createApi", json!({ "name": "🦀🦀" })).await.assert_field_error("/properties/name/minLength");
    }

    async fn a_new_api_is_in_the_audit_log_with_who_made_it(kw) {
        let request = post("apis.createApi")
            .header("authorization", format!("Bearer {}", kw.root_key))
            .header("user-agent", "a test")
            .body(Body::from(json!({ "name": "payments" }).to_string()))
            .unwrap();

        let id = kw.send(request).await.text_of("apiId");

        assert_eq!(kw.list_audit_events(&id).await, ["api.create"]);
        let sql = "
            SELECT a.at, a.actor_type, r.name, a.user_agent, a.targets
            FROM audit a JOIN root_keys r ON r.id = a.actor_id
            WHERE a.event = 'api.create'";
        let row: (i64, String, String, String, String) = match kw.store() {
            Store::Postgres { pool, .. } => sqlx::query_as(sql).fetch_one(&pool.get()).await.unwrap(),
            Store::Sqlite { pool, .. } => sqlx::query_as(sql).fetch_one(pool).await.unwrap(),
        };
        let targets: Value = serde_json::from_str(&row.4).unwrap();
        assert_eq!((row.0, row.1.as_str(), row.2.as_str()), (NOON.0, "rootkey", "KEYWARD_ROOT_KEY"));
        assert_eq!(row.3, "a test");
        assert_eq!(targets, json!([{ "type": "api", "id": id, "name": "payments" }]));
    }

    async fn every_answer_carries_a_request_id_of_its_own(kw) {
        let request = |body: Value| {
            post("apis.createApi")
                .header("authorization", format!("Bearer {}", kw.root_key))
                .header("x-request-id", "req_mine")
                .body(Body::from(body.to_string()))
                .unwrap()
        };

        let replies = [
            kw.send(request(json!({ "name": "payments" }))).await,
            kw.send(request(json!({ "name": "payments" }))).await,
            kw.send(request(json!({}))).await,
        ];

        let mut ids: Vec<_> = replies
            .iter()
            .map(|reply| reply.body["meta"]["requestId"].as_str().unwrap().to_owned())
            .collect();
        assert!(ids.iter().all(|id| id.starts_with("req_") && id.len() >= 13), "{ids:?}");
        assert!(!ids.contains(&"req_mine".to_owned()));
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 3);
    }
}
