//! A recoverable key that is shown again.

use serde_json::json;

use super::*;
use crate::on_both_stacks;

on_both_stacks! {
    async fn recoverable_key_is_shown_again_and_the_audit_log_records_it(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let key = kw.create_key_in(&api, json!({ "name": HOSTILE_NAME, "recoverable": true })).await;
        let path = workspace_path(&format!("/keys/{}", key.id));
        let page = owner.get(&path).await.text;
        assert!(page.contains(&format!("action=\"{path}/reveal\"")) && !page.contains(&key.key), "{page}");
        assert!(!kw.list_audit_events(&key.id).await.contains(&"key.decrypt".to_owned()));

        let shown = owner.post(&format!("{path}/reveal"), &[]).await;

        assert_eq!(secret(&shown), key.key);
        assert_eq!(shown.headers["cache-control"], "no-store");
        assert!(!shown.text.contains(HOSTILE_NAME) && shown.text.contains("is recorded in the"), "{}", shown.text);
        let events = kw.list_audit_events(&key.id).await;
        assert_eq!(events.iter().filter(|event| *event == "key.decrypt").count(), 1, "{events:?}");
        assert_eq!(to(&owner.get(&format!("{path}/reveal")).await), path);
    }

    async fn viewer_cannot_see_a_recoverable_key(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let key = kw.create_key_in(&api, json!({ "recoverable": true })).await;
        let path = workspace_path(&format!("/keys/{}", key.id));

        let page = viewer.get(&path).await.text;
        let refused = viewer.post(&format!("{path}/reveal"), &[]).await;

        assert!(page.contains("Recoverable") && !page.contains("Show key"), "{page}");
        assert_eq!(refused.status, 403);
        assert!(!refused.text.contains(&key.key));
        assert!(!kw.list_audit_events(&key.id).await.contains(&"key.decrypt".to_owned()));
    }

    async fn key_that_cannot_be_shown_says_why(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let hashed = kw.create_key_in(&api, json!({})).await.id;
        let sealed = kw.create_key_in(&api, json!({ "recoverable": true })).await.id;
        let path = |key: &str| workspace_path(&format!("/keys/{key}"));
        assert!(!owner.get(&path(&hashed)).await.text.contains("Show key"));

        let refused = owner.post(&format!("{}/reveal", path(&hashed)), &[]).await;
        assert_eq!(refused.status, 410);
        assert!(refused.text.contains("This key is not recoverable."), "{}", refused.text);
        assert!(!kw.list_audit_events(&hashed).await.contains(&"key.decrypt".to_owned()));

        let master_keys = kw.app.context.master_keys.swap(None);
        let refused = owner.post(&format!("{}/reveal", path(&sealed)), &[]).await;
        assert_eq!(refused.status, 412);
        assert!(refused.text.contains("KEYWARD_MASTER_KEY"), "{}", refused.text);
        kw.app.context.master_keys.store(master_keys);

        kw.update_api(&api, |settings| settings.allows_recoverable_keys = false).await;
        assert!(!owner.get(&path(&sealed)).await.text.contains("Show key"));
        let refused = owner.post(&format!("{}/reveal", path(&sealed)), &[]).await;
        assert_eq!(refused.status, 412);
        assert!(refused.text.contains("does not store recoverable keys"), "{}", refused.text);
    }
}
