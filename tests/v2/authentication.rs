//! Root keys that were good once.

use domain::audit::{self, AuditFilter};
use domain::root_keys::{self, NewRootKey, default_workspace};
use foundation::id::KeyId;
use foundation::model::RootKey;
use foundation::secret::KeyHash;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Reply};

async fn call(kw: &Keyward, root_key: &str) -> Reply {
    kw.v2_as(root_key, "apis.createApi", json!({ "name": "payments" })).await
}

on_both_stacks! {
    async fn a_revoked_root_key_is_refused_at_once(kw) {
        let permissions = root_keys::all_permissions();
        let new = NewRootKey { name: None, permissions, expires_at: None };
        let made = root_keys::create_as_operator(&kw.app.context, &default_workspace(), new).await;
        let (id, secret) = made.unwrap();
        call(&kw, secret.expose()).await.data();

        root_keys::revoke_as_operator(&kw.app.context, &id).await.unwrap();

        assert_eq!(call(&kw, secret.expose()).await.assert_error(401, "root_key_revoked")["title"], "Unauthorized");
    }

    async fn entries_of_an_operator_contain_what_a_root_key_may_do(kw) {
        let (context, workspace) = (&kw.app.context, default_workspace());
        let expires_at = Some(NOON.plus_ms(60_000));
        let permissions = vec!["api.*.read_api".to_owned()];
        let new = NewRootKey { name: Some("billing".to_owned()), permissions, expires_at };
        let expected = json!({ "name": "billing", "permissions": ["api.*.read_api"], "expires": expires_at });

        let (id, _) = root_keys::create_as_operator(context, &workspace, new).await.unwrap();
        root_keys::revoke_as_operator(context, &id).await.unwrap();

        let entry = async |event: &str| {
            let filter = AuditFilter {
                event: Some(event.to_owned()),
                target_ids: vec![id.to_string()],
                rows_max: 10,
                ..AuditFilter::default()
            };
            let mut entries = audit::list(context, &workspace, &filter).await.unwrap();
            assert_eq!(entries.len(), 1, "{event}");
            let entry = entries.remove(0);
            let parse = |fields: Option<&str>| fields.map(|it| serde_json::from_str::<Value>(it).unwrap());
            (parse(entry.before.as_deref()), parse(entry.after.as_deref()), entry.targets.contains("billing"))
        };
        assert_eq!(entry("rootKey.create").await, (None, Some(expected.clone()), true));
        assert_eq!(entry("rootKey.revoke").await, (Some(expected), None, true));
    }

    async fn a_root_key_expires_after_its_last_millisecond(kw) {
        let key = RootKey {
            id: KeyId::random(),
            workspace_id: default_workspace(),
            is_workspace_enabled: true,
            start: "root".into(),
            name: None,
            permissions: root_keys::all_permissions(),
            created_at: NOON,
            expires_at: Some(NOON.plus_ms(1000)),
            revoked_at: None,
        };
        let mut tx = kw.store().begin().await.unwrap();
        tx.insert_root_key(&key, &KeyHash::compute("root_1").to_base64()).await.unwrap();
        tx.commit().await.unwrap();

        kw.clock.advance_ms(1000);
        call(&kw, "root_1").await.data();
        kw.clock.advance_ms(1);
        assert_eq!(call(&kw, "root_1").await.assert_error(401, "root_key_expired")["title"], "Unauthorized");
    }

    async fn a_root_key_of_a_disabled_workspace_is_refused(kw) {
        let stranger = kw.create_other_workspace().await;
        kw.execute_sql("UPDATE workspaces SET enabled = FALSE WHERE id <> 'ws_default'".into()).await;
        assert_eq!(call(&kw, &stranger).await.assert_error(403, "workspace_disabled")["title"], "Forbidden");
        call(&kw, &kw.root_key).await.data();
    }

    async fn a_root_key_is_known_by_every_letter_of_it(kw) {
        let root_key = kw.create_root_key(["api.*.create_api"]).await;
        for wrong in [root_key.to_uppercase(), root_key[1..].to_owned(), format!("{root_key}a")] {
            call(&kw, &wrong).await.assert_error(401, "root_key_not_found");
        }
    }
}
