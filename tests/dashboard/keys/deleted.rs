//! A deleted key's page.

use serde_json::json;

use super::*;
use crate::on_both_stacks;

on_both_stacks! {
    async fn a_deleted_key_tells_who_deleted_it_and_is_restored(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let fields = json!({ "name": "<script>gone", "credits": { "remaining": 7 } });
        let key = kw.create_key(fields).await;
        let path = workspace_path(&format!("/keys/{}", key.id));
        owner.post(&format!("{path}/delete"), &[]).await;
        kw.clock.advance_ms(120_000);

        let pasted = owner.post(&workspace_path("/keys/search"), &[("q", &key.key)]).await;
        let by_id = owner.get(&workspace_path(&format!("/keys?q={}", key.id))).await.text;
        let anywhere = owner.get(&workspace_path(&format!("/search?q={}", key.id))).await.text;
        let page = owner.get(&path).await;

        assert_eq!(to(&pasted), path);
        for list in [by_id, anywhere] {
            assert!(list.contains(&format!("href=\"{path}\"")), "{list}");
        }
        assert_eq!(page.status, 410);
        for text in ["This key was deleted", "2 minutes ago", EMAIL, "/audit/log_", "Restore"] {
            assert!(page.text.contains(text), "{text}: {}", page.text);
        }
        assert!(page.text.contains("&#60;script&#62;gone") && !page.text.contains("<script>gone"));

        let restored = owner.post(&format!("{path}/restore"), &[]).await;
        let page = owner.get(to(&restored)).await;

        assert!(page.text.contains("Key restored.") && page.text.contains("<strong>7</strong>"), "{}", page.text);
        kw.verify(&key.key).await.assert_code("VALID");
        let entry = owner.get(&workspace_path("/audit?event=key.delete")).await.text;
        assert!(entry.contains("Undone"), "{entry}");
        assert_eq!(owner.post(&format!("{path}/restore"), &[]).await.status, 404);
    }

    async fn a_viewer_sees_who_deleted_a_key_and_cannot_restore_it(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        let key = kw.create_key(json!({})).await;
        kw.v2("keys.deleteKey", json!({ "keyId": key.id })).await.data();
        let path = workspace_path(&format!("/keys/{}", key.id));

        let page = viewer.get(&path).await;

        assert_eq!(page.status, 410);
        assert!(page.text.contains("This key was deleted") && !page.text.contains("Restore"), "{}", page.text);
        assert_eq!(viewer.post(&format!("{path}/restore"), &[]).await.status, 403);
    }

    async fn a_key_of_a_deleted_api_leads_to_the_deletion_of_the_api(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({ "name": "orphan" })).await;
        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.data();
        let path = workspace_path(&format!("/keys/{}", key.id));

        let page = owner.get(&path).await;
        let entry = between(&page.text, "/audit/log_", "\"").to_owned();
        let restored = owner.post(&format!("{path}/restore"), &[]).await;
        let undone = owner.post(&workspace_path(&format!("/audit/log_{entry}/undo")), &[]).await;

        assert!(page.text.contains("The API of this key was deleted"), "{}", page.text);
        assert!(!page.text.contains(">Restore<"), "{}", page.text);
        assert_eq!(restored.status, 404);
        assert_eq!(undone.status, 303);
        assert_eq!(owner.get(&path).await.status, 200);
    }

    async fn a_permanently_deleted_key_does_not_exist(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({})).await;
        kw.v2("keys.deleteKey", json!({ "keyId": key.id, "permanent": true })).await.data();

        assert_eq!(owner.get(&workspace_path(&format!("/keys/{}", key.id))).await.status, 404);
        assert_eq!(owner.post(&workspace_path("/keys/search"), &[("q", &key.key)]).await.status, 422);
    }
}
