//! Tests which keys a restored identity gets back.

use domain::root_keys::default_workspace;
use foundation::id::{IdentityId, KeyId};
use foundation::secret::KeyHash;
use serde_json::{Value, json};

use super::super::Browser;
use super::tick;
use super::undo::undo;
use crate::on_both_stacks;
use crate::support::Keyward;

/// Imports a key with an owner id. Such a key has no identity. Returns its id.
async fn import_with_owner(kw: &Keyward, api: &str, key: &str, owner: &str) -> String {
    let hash = json!({ "value": KeyHash::compute(key).to_base64(), "variant": "sha256_base64" });
    let keys = json!([{ "apiId": api, "hash": hash, "ownerId": owner }]);
    let reply = kw.v1("migrations.createKeys", keys).await;
    reply.v1_body()["keyIds"][0].as_str().expect("an id").to_owned()
}

/// Returns the external id of the identity of a key; null without an identity.
async fn identity_of(kw: &Keyward, key: &str) -> Value {
    let reply = kw.verify(key).await;
    reply.assert_code("VALID");
    reply.data()["identity"]["externalId"].clone()
}

on_both_stacks! {
    async fn restored_identity_gets_only_keys_that_lost_it(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let of_user = || json!({ "externalId": "user_1" });
        let linked = kw.create_key_in(&api, of_user()).await;
        let cleared = kw.create_key_in(&api, of_user()).await;
        let deleted = kw.create_key_in(&api, of_user()).await;
        import_with_owner(&kw, &api, "imported_before", "user_1").await;
        kw.v2("keys.deleteKey", json!({ "keyId": deleted.id })).await.data();
        kw.v2("identities.deleteIdentity", json!({ "identity": "user_1" })).await.data();
        assert_eq!(identity_of(&kw, &linked.key).await, Value::Null);
        kw.update_key(&cleared.id, json!({ "externalId": null })).await.data();
        import_with_owner(&kw, &api, "imported_after", "user_1").await;

        undo(&mut owner, "identity.delete").await;
        undo(&mut owner, "key.delete").await;

        for key in [&linked.key, &deleted.key] {
            assert_eq!(identity_of(&kw, key).await, "user_1", "{key}");
        }
        for key in [cleared.key.as_str(), "imported_before", "imported_after"] {
            assert_eq!(identity_of(&kw, key).await, Value::Null, "{key}");
        }
    }

    async fn restored_identity_gets_keys_that_replaced_its_keys(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let limits = json!([{ "name": "shared", "limit": 2, "duration": 60_000, "autoApply": true }]);
        kw.create_identity("user_1", json!({ "ratelimits": limits })).await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({ "externalId": "user_1" })).await;
        kw.v2("identities.deleteIdentity", json!({ "identity": "user_1" })).await.data();
        tick(&kw);
        let ended = json!({ "keyId": key.id, "expiration": 0 });
        let second = kw.v2("keys.rerollKey", ended).await;
        tick(&kw);
        let kept = json!({ "keyId": second.text_of("keyId"), "expiration": 60_000 });
        let third = kw.v2("keys.rerollKey", kept).await;
        import_with_owner(&kw, &api, "imported_after", "user_1").await;

        undo(&mut owner, "identity.delete").await;

        for key in [second.text_of("key"), third.text_of("key")] {
            assert_eq!(identity_of(&kw, &key).await, "user_1", "{key}");
        }
        kw.verify(&third.text_of("key")).await.assert_code("RATE_LIMITED");
        assert_eq!(identity_of(&kw, "imported_after").await, Value::Null);
    }

    async fn restored_identity_gets_key_that_got_it_during_deletion(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let identity = IdentityId::from(kw.create_identity("user_1", json!({})).await);
        let api = kw.create_api().await;
        let key = KeyId::from(import_with_owner(&kw, &api, "old_key", "user_1").await);
        let mut linking = kw.store().begin().await.unwrap();
        let keys = Some(std::slice::from_ref(&key));
        linking.link_identity(&default_workspace(), &identity, "user_1", keys).await.unwrap();

        let commit = async {
            kw.wait_until_blocked(1).await;
            kw.app.context.commit(linking).await.unwrap();
        };
        let delete = kw.v2("identities.deleteIdentity", json!({ "identity": "user_1" }));
        let (deleted, ()) = tokio::join!(delete, commit);
        deleted.data();
        assert_eq!(identity_of(&kw, "old_key").await, Value::Null);
        undo(&mut owner, "identity.delete").await;

        assert_eq!(identity_of(&kw, "old_key").await, "user_1");
    }
}
