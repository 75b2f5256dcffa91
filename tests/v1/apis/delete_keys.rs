use domain::root_keys::default_workspace;
use foundation::id::KeyId;
use foundation::secret::KeyHash;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply, Stack};

async fn delete(kw: &Keyward, api: &str, permanent: Value) -> Reply {
    let mut request = json!({ "apiId": api });
    if !permanent.is_null() {
        request["permanent"] = permanent;
    }
    kw.v1("apis.deleteKeys", request).await
}

/// Takes in a key by its hash.
async fn import(kw: &Keyward, api: &str, keys: &[&str]) -> Reply {
    let key = |key: &&str| {
        let hash =
            json!({ "value": KeyHash::compute(*key).to_base64(), "variant": "sha256_base64" });
        json!({ "apiId": api, "hash": hash })
    };
    kw.v1("migrations.createKeys", keys.iter().map(key).collect()).await
}

on_both_stacks! {
    async fn all_keys_of_the_api_stop_verifying_at_once_and_are_counted(kw) {
        let api = kw.create_api().await;
        let keys = [kw.create_key_in(&api, json!({})).await, kw.create_key_in(&api, json!({})).await];
        let other = kw.create_key(json!({})).await;
        for key in &keys {
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        }

        assert_eq!(*delete(&kw, &api, Value::Null).await.v1_body(), json!({ "deletedKeys": 2 }));

        for key in &keys {
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("NOT_FOUND");
            assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.delete"]);
        }
        kw.verify_v1(&other.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn the_api_goes_on_without_them(kw) {
        let api = kw.create_api().await;
        kw.create_key_in(&api, json!({})).await;
        delete(&kw, &api, Value::Null).await.v1_body();

        let key = kw.create_key_in(&api, json!({})).await;

        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        let list = kw.v1_get("apis.listKeys", &format!("apiId={api}")).await;
        assert_eq!((&list.v1_body()["total"], &list.body["keys"][0]["id"]), (&json!(1), &json!(key.id)));
    }

    async fn what_is_deleted_is_not_counted_again_and_its_secret_stays_taken(kw) {
        let api = kw.create_api().await;
        import(&kw, &api, &["old_key"]).await.v1_body();
        assert_eq!(*delete(&kw, &api, json!(false)).await.v1_body(), json!({ "deletedKeys": 1 }));
        assert_eq!(*delete(&kw, &api, json!(false)).await.v1_body(), json!({ "deletedKeys": 0 }));
        import(&kw, &api, &["old_key"]).await.assert_v1_error(409, "CONFLICT");
    }

    async fn of_what_goes_for_good_nothing_is_left_whether_it_was_deleted_or_not(kw) {
        let api = kw.create_api().await;
        import(&kw, &api, &["old_key"]).await.v1_body();
        delete(&kw, &api, Value::Null).await.v1_body();
        let key = kw.create_key_in(&api, json!({ "credits": { "remaining": 5 } })).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

        assert_eq!(*delete(&kw, &api, json!(true)).await.v1_body(), json!({ "deletedKeys": 2 }));

        assert_eq!(kw.count_rows("keys").await, 0);
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("NOT_FOUND");
        import(&kw, &api, &["old_key"]).await.v1_body();
        kw.verify_v1("old_key", json!({})).await.assert_v1_code("VALID");
    }

    async fn however_many_they_are_all_of_them_go(kw) {
        let api = kw.create_api().await;
        for hundred in 0..11 {
            let keys: Vec<_> = (0..100).map(|n| format!("old key {hundred} {n}")).collect();
            let keys: Vec<_> = keys.iter().map(String::as_str).collect();
            import(&kw, &api, &keys).await.v1_body();
        }

        assert_eq!(delete(&kw, &api, Value::Null).await.v1_body()["deletedKeys"], 1100);
        assert_eq!(delete(&kw, &api, json!(true)).await.v1_body()["deletedKeys"], 1100);

        assert_eq!(kw.count_rows("keys").await, 0);
    }

    async fn of_two_calls_at_once_each_key_is_counted_by_one(kw) {
        for permanent in [false, true] {
            let api = kw.create_api().await;
            let first = kw.create_key_in(&api, json!({})).await.id;
            let second = kw.create_key_in(&api, json!({})).await.id;

            // Where two can write at once, both have found the keys before either may delete one.
            let mut held = None;
            if kw.stack == Stack::Replica {
                let mut tx = kw.store().begin().await.unwrap();
                for id in [first, second] {
                    tx.lock_key(&default_workspace(), &KeyId::from(id)).await.unwrap();
                }
                held = Some(tx);
            }
            let release = async {
                if let Some(tx) = held {
                    kw.wait_until_blocked(2).await;
                    drop(tx);
                }
            };
            let call = || delete(&kw, &api, json!(permanent));
            let (one, other, ()) = tokio::join!(call(), call(), release);

            let count = |reply: &Reply| reply.v1_body()["deletedKeys"].as_i64().unwrap();
            assert_eq!(count(&one) + count(&other), 2);
        }
    }

    async fn a_protected_api_keeps_itself_and_not_its_keys(kw) {
        let api = kw.create_api().await;
        kw.create_key_in(&api, json!({})).await;
        kw.update_api(&api, |settings| settings.is_delete_protected = true).await;
        assert_eq!(delete(&kw, &api, Value::Null).await.v1_body()["deletedKeys"], 1);
    }
}
