//! Requests that are sent again, because nobody heard their answer.

use axum::body::Body;
use futures_util::future::join_all;
use serde_json::{Value, json};
use store::Store;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply, post};

async fn send(kw: &Keyward, name: &str, operation: &str, body: &Value) -> Reply {
    send_as(kw, &kw.root_key, name, operation, body).await
}

async fn send_as(kw: &Keyward, root_key: &str, name: &str, operation: &str, body: &Value) -> Reply {
    let request = post(operation)
        .header("authorization", format!("Bearer {root_key}"))
        .header("idempotency-key", name)
        .body(Body::from(body.to_string()))
        .unwrap();
    kw.send(request).await
}

async fn kept(kw: &Keyward) -> String {
    let sql = "SELECT name || request || sealed FROM kept_replies";
    let rows: Vec<String> = match kw.store() {
        Store::Postgres { pool, .. } => {
            sqlx::query_scalar(sql).fetch_all(&pool.get()).await.unwrap()
        }
        Store::Sqlite { pool, .. } => sqlx::query_scalar(sql).fetch_all(pool).await.unwrap(),
    };
    rows.join("\n")
}

on_both_stacks! {
    async fn a_repeated_creation_gives_the_same_key(kw) {
        let body = json!({ "apiId": kw.create_api().await, "prefix": "prod" });

        let first = send(&kw, "order 66", "keys.createKey", &body).await;
        let again = send(&kw, "order 66", "keys.createKey", &body).await;
        assert_ne!(first.data(), send(&kw, "order 67", "keys.createKey", &body).await.data());
        assert_ne!(first.data(), kw.v2("keys.createKey", body).await.data());

        assert_eq!(first.data(), again.data());
        assert_ne!(first.body["meta"], again.body["meta"]);
        assert_eq!(kw.count_rows("keys").await, 3);
        kw.verify(&again.text_of("key")).await.assert_code("VALID");
    }

    async fn a_repeated_reroll_makes_one_new_key(kw) {
        let key = kw.create_key(json!({})).await;
        let body = json!({ "keyId": key.id, "expiration": 0 });
        let first = send(&kw, "a", "keys.rerollKey", &body).await;
        assert_eq!(first.data(), send(&kw, "a", "keys.rerollKey", &body).await.data());
        assert_eq!(kw.count_rows("keys").await, 2);
    }

    async fn a_repeated_change_of_credits_counts_once(kw) {
        let daily = json!({ "interval": "daily", "amount": 10 });
        let key = kw.create_key(json!({ "credits": { "remaining": 5, "refill": daily } })).await;
        let body = json!({ "keyId": key.id, "operation": "increment", "value": 3 });

        let first = send(&kw, "a", "keys.updateCredits", &body).await;
        kw.verify(&key.key).await.assert_code("VALID");
        let again = send(&kw, "a", "keys.updateCredits", &body).await;
        assert_eq!(send(&kw, "b", "keys.updateCredits", &body).await.data()["remaining"], 10);

        assert_eq!((first.data(), &first.data()["remaining"]), (again.data(), &json!(8)));
    }

    async fn many_at_once_do_it_once(kw) {
        let body = json!({ "apiId": kw.create_api().await });

        let replies = join_all((0..8).map(|_| send(&kw, "a", "keys.createKey", &body))).await;

        assert_eq!(kw.count_rows("keys").await, 1);
        for reply in &replies {
            assert_eq!(reply.data(), replies[0].data());
        }
    }

    async fn concurrent_rerolls_with_one_name_get_the_same_key(kw) {
        let key = kw.create_key(json!({})).await;
        let body = json!({ "keyId": key.id, "expiration": 0 });

        let replies = join_all((0..8).map(|_| send(&kw, "a", "keys.rerollKey", &body))).await;

        assert_eq!(kw.count_rows("keys").await, 2);
        for reply in &replies {
            assert_eq!(reply.data(), replies[0].data());
        }
    }

    async fn a_name_stands_for_one_request(kw) {
        let api = kw.create_api().await;
        let key = send(&kw, "a", "keys.createKey", &json!({ "apiId": api })).await;
        let name = "idempotency_key_in_use";
        let reroll = json!({ "keyId": key.text_of("keyId"), "expiration": 0 });

        send(&kw, "a", "keys.createKey", &json!({ "apiId": api, "name": "x" })).await.assert_error(409, name);
        send(&kw, "a", "keys.rerollKey", &reroll).await.assert_error(409, name);

        assert_eq!(kw.count_rows("keys").await, 1);
    }

    async fn a_name_belongs_to_its_root_key(kw) {
        let body = json!({ "apiId": kw.create_api().await });
        let other = kw.create_root_key(["api.*.create_key"]).await;
        let mine = send(&kw, "a", "keys.createKey", &body).await;
        assert_ne!(mine.data(), send_as(&kw, &other, "a", "keys.createKey", &body).await.data());
    }

    async fn what_was_refused_may_be_tried_again(kw) {
        let api = kw.create_api().await;
        let body = json!({ "apiId": api, "roles": ["editor"] });
        send(&kw, "a", "keys.createKey", &body).await.assert_error(404, "role_not_found");
        kw.create_role("editor", []).await;
        send(&kw, "a", "keys.createKey", &body).await.data();
    }

    async fn the_database_holds_no_key_that_could_be_read(kw) {
        let body = json!({ "apiId": kw.create_api().await });
        let key = send(&kw, "a very telling name", "keys.createKey", &body).await;

        let kept = kept(&kw).await;

        assert!(!kept.is_empty());
        let shown = [key.text_of("key"), key.text_of("keyId"), kw.root_key.clone(), "telling".into()];
        for secret in &shown {
            assert!(!kept.contains(secret), "{kept}");
        }
    }

    async fn a_name_has_1_to_255_printable_characters(kw) {
        let body = json!({ "apiId": kw.create_api().await });

        for wrong in ["", &"a".repeat(256), "tab\there"] {
            let reply = send(&kw, wrong, "keys.createKey", &body).await;
            assert!(reply.assert_field_error("idempotency-key").contains("255"), "{wrong:?}");
        }
        send(&kw, &"a".repeat(255), "keys.createKey", &body).await.data();
    }

    async fn other_operations_pass_over_it(kw) {
        let body = json!({ "name": "an API" });
        let first = send(&kw, "a", "apis.createApi", &body).await;
        assert_ne!(first.data(), send(&kw, "a", "apis.createApi", &body).await.data());
    }
}
