//! Keys of which a sealed copy is kept.

use domain::vault;
use foundation::vault::{MasterKey, MasterKeys};
use serde_json::{Value, json};
use store::Store;

use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Reply};

/// An API that keeps recoverable keys, and one of them.
async fn recoverable(kw: &Keyward) -> (String, IssuedKey) {
    let api = kw.create_api().await;
    kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
    let key = kw.create_key_in(&api, json!({ "prefix": "prod", "recoverable": true })).await;
    (api, key)
}

async fn decrypt(kw: &Keyward, key: &str) -> Reply {
    kw.v2("keys.getKey", json!({ "keyId": key, "decrypt": true })).await
}

/// Everything that a table holds, as one text.
async fn dump(kw: &Keyward, table: &'static str) -> String {
    match kw.store() {
        Store::Postgres { pool, .. } => {
            let sql = format!("SELECT COALESCE(jsonb_agg(t)::text, '') FROM {table} t");
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&pool.get()).await.unwrap()
        }
        Store::Sqlite { pool, .. } => {
            let sql = "SELECT hex(sealed) || key_id FROM sealed_keys";
            let rows: Vec<String> = sqlx::query_scalar(sql).fetch_all(pool).await.unwrap();
            rows.join(" ")
        }
    }
}

fn detail(reply: &Reply, status: u16, name: &str) -> String {
    reply.assert_error(status, name)["detail"].as_str().unwrap().to_owned()
}

on_both_stacks! {
    async fn a_recoverable_key_is_shown_to_who_asks_and_only_then(kw) {
        let (api, key) = recoverable(&kw).await;
        let plain = kw.create_key_in(&api, json!({})).await;

        assert_eq!(kw.get_key(&key.id).await.get("plaintext"), None);
        assert_eq!(decrypt(&kw, &key.id).await.data()["plaintext"], key.key);
        assert_eq!(decrypt(&kw, &plain.id).await.data().get("plaintext"), None);
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn a_list_shows_those_that_are_recoverable(kw) {
        let (api, key) = recoverable(&kw).await;
        let other = kw.create_key_in(&api, json!({ "recoverable": true })).await;
        let plain = kw.create_key_in(&api, json!({})).await;
        let list = async |decrypt: bool| { kw.v2("apis.listKeys", json!({ "apiId": api, "decrypt": decrypt })).await };

        let shown = list(true).await;
        let hidden = list(false).await;

        for item in shown.data().as_array().unwrap() {
            let due = [&key, &other].into_iter().find(|key| item["keyId"] == key.id);
            assert_eq!(item["plaintext"], due.map_or(Value::Null, |key| json!(key.key)));
            assert!(due.is_some() || item["keyId"] == plain.id);
        }
        assert!(hidden.data().as_array().unwrap().iter().all(|i| i.get("plaintext").is_none()));
    }

    async fn who_has_read_a_key_is_in_the_audit_log(kw) {
        let (api, key) = recoverable(&kw).await;
        let plain = kw.create_key_in(&api, json!({})).await;

        decrypt(&kw, &key.id).await.data();
        kw.v2("apis.listKeys", json!({ "apiId": api, "decrypt": true })).await.data();
        decrypt(&kw, &plain.id).await.data();

        assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.decrypt", "key.decrypt"]);
        assert_eq!(kw.list_audit_events(&plain.id).await, ["key.create"]);
    }

    async fn the_database_holds_no_key_that_could_be_read(kw) {
        let (_, key) = recoverable(&kw).await;
        let held = dump(&kw, "sealed_keys").await;
        let random = key.key.strip_prefix("prod_").unwrap();
        assert!(held.contains(&key.id), "{held}");
        assert!(!held.contains(random), "{held}");
    }

    async fn a_rerolled_one_is_recoverable_again(kw) {
        let (api, key) = recoverable(&kw).await;
        let plain = kw.create_key_in(&api, json!({})).await;
        let reroll = async |key: &IssuedKey| { kw.v2("keys.rerollKey", json!({ "keyId": key.id, "expiration": 0 })).await };

        let (new, of_plain) = (reroll(&key).await, reroll(&plain).await);

        assert_eq!(decrypt(&kw, &new.text_of("keyId")).await.data()["plaintext"], new.text_of("key"));
        assert_eq!(decrypt(&kw, &key.id).await.data()["plaintext"], key.key);
        assert_eq!(decrypt(&kw, &of_plain.text_of("keyId")).await.data().get("plaintext"), None);
    }

    async fn an_api_that_keeps_none_says_so(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        let name = "precondition_failed";

        let made = kw.v2("keys.createKey", json!({ "apiId": api, "recoverable": true })).await;
        let listed = kw.v2("apis.listKeys", json!({ "apiId": api, "decrypt": true })).await;
        let shown = decrypt(&kw, &key.id).await;

        for reply in [made, listed, shown] {
            assert!(detail(&reply, 412, name).contains(&api), "{}", reply.text);
        }
        assert_eq!(kw.count_rows("keys").await, 1);
    }

    async fn sealing_and_reading_each_need_a_right_of_their_own(kw) {
        let (api, key) = recoverable(&kw).await;
        let root_key = kw.create_root_key(["api.*.create_key", "api.*.read_key", "api.*.read_api"]).await;
        let may_all = kw
            .create_root_key([
                "api.*.create_key", "api.*.read_key", "api.*.read_api", "api.*.encrypt_key",
                "api.*.decrypt_key",
            ])
            .await;
        let requests = [
            ("keys.createKey", json!({ "apiId": api, "recoverable": true }), 404),
            ("keys.getKey", json!({ "keyId": key.id, "decrypt": true }), 403),
            ("apis.listKeys", json!({ "apiId": api, "decrypt": true }), 403),
            ("keys.rerollKey", json!({ "keyId": key.id, "expiration": 0 }), 403),
        ];

        for (operation, request, status) in requests {
            let refused = kw.v2_as(&root_key, operation, request.clone()).await;
            assert_eq!(refused.status, status, "{operation}: {}", refused.text);
            kw.v2_as(&may_all, operation, request).await.data();
        }
    }

    async fn a_server_without_a_master_key_refuses_and_says_what_is_missing(kw) {
        let (api, key) = recoverable(&kw).await;
        kw.app.context.master_keys.store(None);
        let requests = [
            ("keys.createKey", json!({ "apiId": api, "recoverable": true })),
            ("keys.getKey", json!({ "keyId": key.id, "decrypt": true })),
            ("apis.listKeys", json!({ "apiId": api, "decrypt": true })),
            ("keys.rerollKey", json!({ "keyId": key.id, "expiration": 0 })),
        ];

        for (operation, request) in requests {
            let reply = kw.v2(operation, request).await;
            let detail = detail(&reply, 412, "precondition_failed");
            assert!(detail.contains("KEYWARD_MASTER_KEY"), "{operation}: {detail}");
        }
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn a_rotated_master_key_opens_what_the_old_one_sealed(kw) {
        let (_, key) = recoverable(&kw).await;
        let old = kw.app.context.master_keys.load_full().unwrap();
        let new = MasterKey::generate();
        let both = MasterKeys { current_key: new.clone(), previous_key: Some(old.current_key.clone()) };
        let alone = MasterKeys { current_key: new, previous_key: None };

        let lost_before = vault::list_undecryptable(kw.store(), Some(&alone)).await.unwrap().data_keys;
        let rotated = vault::reseal_all(&kw.app.context, &both).await.unwrap().data_keys;
        let again = vault::reseal_all(&kw.app.context, &both).await.unwrap().data_keys;
        let lost_after = vault::list_undecryptable(kw.store(), Some(&alone)).await.unwrap().data_keys;
        let to_the_old = vault::list_undecryptable(kw.store(), Some(&old)).await.unwrap().data_keys;

        assert_eq!((lost_before.len(), rotated, again), (1, 1, 0));

        assert_eq!((lost_after.len(), to_the_old.len()), (0, 1));
        kw.app.context.master_keys.store(Some(alone.into()));
        assert_eq!(decrypt(&kw, &key.id).await.data()["plaintext"], key.key);
    }

    async fn a_sealed_copy_that_was_tampered_with_is_left_out(kw) {
        let (_, key) = recoverable(&kw).await;
        kw.execute_sql("UPDATE sealed_keys SET sealed = 'AAAA' || substr(sealed, 5)".into()).await;
        assert_eq!(decrypt(&kw, &key.id).await.data().get("plaintext"), None);
    }

    async fn a_key_that_is_deleted_for_good_leaves_no_copy(kw) {
        let (_, key) = recoverable(&kw).await;
        kw.v2("keys.deleteKey", json!({ "keyId": key.id, "permanent": true })).await.data();
        assert_eq!(kw.count_rows("sealed_keys").await, 0);
    }
}
