//! Undoing what the audit log tells.

use foundation::id::{KeyId, PermissionId};
use serde_json::json;

use super::super::{Browser, between, redirect_path, workspace_path};
use super::{entries, entry, tick};
use crate::on_both_stacks;
use crate::support::{Keyward, Stack};

/// Undoes the latest entry of an event.
pub async fn undo(visitor: &mut Browser<'_>, event: &str) {
    tick(visitor.kw);
    let path = entry(visitor, event).await;
    let undone = visitor.post(&format!("{path}/undo"), &[]).await;
    assert!(redirect_path(&undone).ends_with("?notice=undone"), "{event}");
    let page = visitor.get(&path).await.text;
    assert!(page.contains("This change was undone"), "{event}: {page}");
    tick(visitor.kw);
}

on_both_stacks! {
    async fn a_renamed_workspace_gets_its_previous_name(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let settings = workspace_path("/workspace");
        tick(&kw);
        owner.post(&settings, &[("name", "Acme")]).await;
        let heading = "<h1 class=\"break\">";
        assert_eq!(between(&owner.get(&settings).await.text, heading, "</h1>"), "Acme");

        undo(&mut owner, "workspace.rename").await;

        assert_eq!(between(&owner.get(&settings).await.text, heading, "</h1>"), "default");
    }

    async fn a_key_is_set_back_but_for_what_was_not_part_of_the_change(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let limits = json!([{ "name": "each", "limit": 5, "duration": 60_000, "autoApply": true }]);
        let before = json!({
            "name": "good", "externalId": "user_1", "meta": { "plan": "pro" }, "ratelimits": limits,
            "credits": { "remaining": 100, "refill": { "interval": "monthly", "amount": 100, "refillDay": 5 } },
        });
        let key = kw.create_key(before).await;
        let was = kw.get_key(&key.id).await;
        let mistake = json!({
            "name": null, "externalId": null, "meta": null, "ratelimits": [], "enabled": false, "credits": null,
        });
        kw.update_key(&key.id, mistake).await.data();
        kw.verify(&key.key).await.assert_code("DISABLED");
        tick(&kw);
        kw.update_key(&key.id, json!({ "expires": 1_900_000_000_000_i64 })).await.data();

        let path = entries(&mut owner, "key.update").await.pop().expect("an entry");
        let page = owner.get(&path).await.text;
        assert!(page.contains("The target was changed again later"), "{page}");
        redirect_path(&owner.post(&format!("{path}/undo"), &[]).await);

        let is = kw.get_key(&key.id).await;
        for field in ["name", "meta", "identity", "credits", "enabled"] {
            assert_eq!(is[field], was[field], "{field}");
        }
        assert_eq!(is["ratelimits"][0]["limit"], 5);
        assert_eq!(is["expires"], 1_900_000_000_000_i64);
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn what_is_undone_is_not_undone_again_but_the_undoing_is(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({ "name": "a" })).await;
        kw.update_key(&key.id, json!({ "name": "b" })).await.data();
        let path = entry(&mut owner, "key.update").await;
        tick(&kw);
        redirect_path(&owner.post(&format!("{path}/undo"), &[]).await);
        tick(&kw);

        let again = owner.post(&format!("{path}/undo"), &[]).await;

        assert_eq!(again.status, 422);
        assert!(again.text.contains("this entry has already been undone"));
        assert_eq!(kw.get_key(&key.id).await["name"], "a");
        let undoing = entry(&mut owner, "key.update").await;
        let page = owner.get(&undoing).await.text;
        assert!(page.contains("This entry undid") && page.contains(&path));
        redirect_path(&owner.post(&format!("{undoing}/undo"), &[]).await);
        assert_eq!(kw.get_key(&key.id).await["name"], "b");
    }

    async fn of_two_who_undo_the_same_at_once_one_does(kw) {
        let owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({ "credits": { "remaining": 10 } })).await;
        let added = json!({ "keyId": key.id, "operation": "increment", "value": 5 });
        kw.v2("keys.updateCredits", added).await.data();
        let visitor = || Browser { kw: &kw, cookies: owner.cookies.clone(), csrf: owner.csrf.clone(), forwarded: None };
        let path = entry(&mut visitor(), "key.update").await;

        let act = format!("{path}/undo");
        let tries = (0..4).map(|_| async { visitor().post(&act, &[]).await.status.as_u16() });
        let mut answers = futures_util::future::join_all(tries).await;

        answers.sort_unstable();
        assert_eq!(answers, [303, 422, 422, 422]);
        assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 10);
    }

    async fn credits_that_were_added_are_taken_away_and_what_was_used_stays_used(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({ "credits": { "remaining": 10 } })).await;
        let added = json!({ "keyId": key.id, "operation": "increment", "value": 1_000 });
        kw.v2("keys.updateCredits", added).await.data();
        for _ in 0..3 {
            kw.verify(&key.key).await.assert_code("VALID");
        }

        undo(&mut owner, "key.update").await;
        assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 7);

        let set = json!({ "keyId": key.id, "operation": "set", "value": 0 });
        kw.v2("keys.updateCredits", set).await.data();
        kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");
        undo(&mut owner, "key.update").await;
        assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 7);
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn a_deleted_key_comes_back_with_all_that_it_had(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_role("reader", ["docs.read"]).await;
        let fields = json!({ "name": "gone", "credits": { "remaining": 10 }, "roles": ["reader"], "externalId": "user_1" });
        let key = kw.create_key(fields).await;
        kw.verify(&key.key).await.assert_code("VALID");
        let was = kw.get_key(&key.id).await;
        kw.v2("keys.deleteKey", json!({ "keyId": key.id })).await.data();
        kw.verify(&key.key).await.assert_code("NOT_FOUND");

        undo(&mut owner, "key.delete").await;

        assert_eq!(kw.get_key(&key.id).await, was);
        kw.verify(&key.key).await.assert_code("VALID");
        undo(&mut owner, "key.restore").await;
        kw.verify(&key.key).await.assert_code("NOT_FOUND");
    }

    async fn a_key_that_was_deleted_for_good_does_not_come_back(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({})).await;
        kw.v2("keys.deleteKey", json!({ "keyId": key.id, "permanent": true })).await.data();
        let path = entry(&mut owner, "key.delete").await;

        let page = owner.get(&path).await.text;
        let tried = owner.post(&format!("{path}/undo"), &[]).await;

        assert!(page.contains("This change cannot be undone: the key was deleted permanently."));
        assert_eq!(tried.status, 422);
        assert!(tried.text.contains("this entry cannot be undone: the key was deleted permanently"));
    }

    async fn permissions_and_roles_come_back_to_those_who_had_them(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let role = kw.create_role("writer", ["docs.read", "docs.write"]).await;
        let key = kw.create_key(json!({ "roles": ["writer"], "permissions": ["docs.read"] })).await;
        let asks = |slug: &'static str| kw.verify_with(&key.key, json!({ "permissions": slug }));
        asks("docs.write").await.assert_code("VALID");

        kw.v2("permissions.deleteRole", json!({ "role": role })).await.data();
        asks("docs.write").await.assert_code("INSUFFICIENT_PERMISSIONS");
        undo(&mut owner, "role.delete").await;
        asks("docs.write").await.assert_code("VALID");
        assert_eq!(kw.v2("permissions.getRole", json!({ "role": "writer" })).await.data()["id"], *role);

        let called = [("name", "author"), ("description", "Writes."), ("was-name", "writer")];
        redirect_path(&owner.post(&workspace_path(&format!("/roles/{role}/settings")), &called).await);
        undo(&mut owner, "role.update").await;
        let back = kw.v2("permissions.getRole", json!({ "role": "writer" })).await;
        assert!(back.data()["description"].is_null(), "{}", back.text);

        kw.v2("permissions.deletePermission", json!({ "permission": "docs.write" })).await.data();
        asks("docs.write").await.assert_code("INSUFFICIENT_PERMISSIONS");
        undo(&mut owner, "permission.delete").await;
        asks("docs.write").await.assert_code("VALID");

        let none: [&str; 0] = [];
        kw.v2("permissions.setRolePermissions", json!({ "roleId": role, "permissions": none })).await.data();
        asks("docs.write").await.assert_code("INSUFFICIENT_PERMISSIONS");
        for path in entries(&mut owner, "authorization.disconnect_role_and_permissions").await {
            redirect_path(&owner.post(&format!("{path}/undo"), &[]).await);
        }
        asks("docs.write").await.assert_code("VALID");

        kw.v2("keys.setRoles", json!({ "keyId": key.id, "roles": none })).await.data();
        asks("docs.write").await.assert_code("INSUFFICIENT_PERMISSIONS");
        undo(&mut owner, "authorization.disconnect_role_and_key").await;
        asks("docs.write").await.assert_code("VALID");
        undo(&mut owner, "authorization.connect_role_and_key").await;
        asks("docs.write").await.assert_code("INSUFFICIENT_PERMISSIONS");

        kw.v2("keys.setPermissions", json!({ "keyId": key.id, "permissions": none })).await.data();
        asks("docs.read").await.assert_code("INSUFFICIENT_PERMISSIONS");
        undo(&mut owner, "authorization.disconnect_permission_and_key").await;
        asks("docs.read").await.assert_code("VALID");
    }

    async fn a_permission_comes_back_to_a_key_that_got_it_while_it_was_deleted(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let id = PermissionId::from(kw.create_permission("docs.read").await);
        let key = kw.create_key(json!({})).await;
        let mut adding = kw.store().begin().await.unwrap();
        adding.set_key_permissions(&KeyId::from(key.id.clone()), std::slice::from_ref(&id)).await.unwrap();

        let commit = async {
            kw.wait_until_blocked(1).await;
            kw.app.context.commit(adding).await.unwrap();
        };
        let delete = kw.v2("permissions.deletePermission", json!({ "permission": "docs.read" }));
        let (deleted, ()) = tokio::join!(delete, commit);
        deleted.data();
        undo(&mut owner, "permission.delete").await;

        kw.verify_with(&key.key, json!({ "permissions": "docs.read" })).await.assert_code("VALID");
    }

    async fn a_name_that_was_taken_meanwhile_is_told(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_permission("docs.read").await;
        kw.v2("permissions.deletePermission", json!({ "permission": "docs.read" })).await.data();
        kw.create_permission("docs.read").await;
        let path = entry(&mut owner, "permission.delete").await;

        let tried = owner.post(&format!("{path}/undo"), &[]).await;

        assert_eq!(tried.status, 422, "{}", tried.text);
        assert!(tried.text.contains("already exists"));
        assert_eq!(kw.count_rows("permissions").await, 1);
    }

    async fn an_identity_comes_back_and_is_set_back(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let limits = json!([{ "name": "all", "limit": 2, "duration": 60_000, "autoApply": true }]);
        let new = json!({ "externalId": "user_1", "meta": { "plan": "pro" }, "ratelimits": limits });
        kw.v2("identities.createIdentity", new).await.data();
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        let was = kw.get_identity("user_1").await;
        let change = json!({ "identity": "user_1", "meta": { "plan": "free" }, "ratelimits": [] });
        kw.v2("identities.updateIdentity", change).await.data();

        undo(&mut owner, "identity.update").await;
        let is = kw.get_identity("user_1").await;
        assert_eq!((&is["meta"], &is["ratelimits"][0]["limit"]), (&was["meta"], &json!(2)));

        kw.v2("identities.deleteIdentity", json!({ "identity": "user_1" })).await.data();
        kw.verify(&key.key).await.assert_code("VALID");
        undo(&mut owner, "identity.delete").await;
        assert_eq!(kw.get_identity("user_1").await["id"], was["id"]);
        let told = kw.verify(&key.key).await;
        assert_eq!(told.data()["identity"]["externalId"], "user_1", "{}", told.text);
        assert_eq!(told.data()["identity"]["meta"]["plan"], "pro");
    }

    async fn an_api_comes_back_with_its_keys(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        let deleted = kw.create_key_in(&api, json!({})).await;
        kw.v2("keys.deleteKey", json!({ "keyId": deleted.id })).await.data();
        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.data();
        kw.verify(&key.key).await.assert_code("NOT_FOUND");
        let path = entry(&mut owner, "key.delete").await;
        let tried = owner.post(&format!("{path}/undo"), &[]).await;
        assert_eq!(tried.status, 404, "{}", tried.text);

        undo(&mut owner, "api.delete").await;

        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&deleted.key).await.assert_code("NOT_FOUND");
        undo(&mut owner, "key.delete").await;
        kw.verify(&deleted.key).await.assert_code("VALID");
        kw.update_api(&api, |settings| settings.default_prefix = Some("sk".into())).await;
        undo(&mut owner, "api.update").await;
        assert!(!kw.create_key_in(&api, json!({})).await.key.starts_with("sk_"));
    }

    async fn overrides_and_namespaces_come_back(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.check_limit("logins", "ada", json!({})).await.data();
        kw.set_override("logins", "ada", json!({ "limit": 3, "duration": 60_000 })).await;
        tick(&kw);
        kw.set_override("logins", "ada", json!({ "limit": 4, "duration": 60_000 })).await;
        let limit = async || kw.check_limit("logins", "ada", json!({})).await.data()["limit"].clone();
        assert_eq!(limit().await, 4);

        undo(&mut owner, "ratelimit.set_override").await;
        assert_eq!(limit().await, 3);
        let delete = json!({ "namespace": "logins", "identifier": "ada" });
        kw.v2("ratelimit.deleteOverride", delete).await.data();
        assert_eq!(limit().await, 10);
        undo(&mut owner, "ratelimit.delete_override").await;
        assert_eq!(limit().await, 3);

        tick(&kw);
        kw.delete_namespace("logins").await;
        kw.check_limit("logins", "ada", json!({})).await.assert_error(410, "ratelimit_namespace_gone");
        undo(&mut owner, "ratelimitNamespace.delete").await;
        assert_eq!(limit().await, 3);
    }

    async fn a_root_key_is_good_again_and_a_member_has_their_role_again(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        tick(&kw);
        let page = owner.post(&workspace_path("/root-keys"), &[("permission", "api.*.create_api")]).await.text;
        let secret = between(&page, "keyward_", "<").to_owned();
        let secret = format!("keyward_{secret}");
        let make = async || kw.v2_as(&secret, "apis.createApi", json!({ "name": "an API" })).await.status.as_u16();
        assert_eq!(make().await, 200);
        let path = entry(&mut owner, "rootKey.create").await;
        redirect_path(&owner.post(&format!("{path}/undo"), &[]).await);
        assert_eq!(make().await, 401);
        undo(&mut owner, "rootKey.revoke").await;
        assert_eq!(make().await, 200);

        let mut admin = owner.invite("grace@example.com", "admin").await;
        let page = owner.get(&workspace_path("/members")).await.text;
        let grace = page.rsplit_once("/members/user_").expect("a member").1;
        let grace = format!("user_{}", grace.split_once('/').expect("a path").0);
        redirect_path(&owner.post(&workspace_path(&format!("/members/{grace}/role")), &[("role", "viewer")]).await);
        assert_eq!(admin.get(&workspace_path("/root-keys/new")).await.status, 403);
        undo(&mut owner, "member.setRole").await;
        assert_eq!(admin.get(&workspace_path("/root-keys/new")).await.status, 200);
    }

    async fn who_may_not_do_it_cannot_undo_it_and_others_entries_are_not_there(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({ "name": "a" })).await;
        kw.update_key(&key.id, json!({ "name": "b" })).await.data();
        let path = entry(&mut owner, "key.update").await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;

        let page = viewer.get(&path).await;
        let tried = viewer.post(&format!("{path}/undo"), &[]).await;

        assert_eq!(page.status, 200);
        assert!(page.text.contains("Viewers cannot undo changes"));
        assert!(!page.text.contains("/undo\""));
        assert_eq!(tried.status, 403);
        assert_eq!(kw.get_key(&key.id).await["name"], "b");
        let theirs = kw.create_other_workspace().await;
        kw.v2_as(&theirs, "apis.createApi", json!({ "name": "theirs" })).await.data();
        let ids = kw.list_texts("audit", "id").await;
        let mut seen = Vec::new();
        for id in &ids {
            let status = owner.get(&workspace_path(&format!("/audit/{id}"))).await.status.as_u16();
            seen.push(status);
        }
        assert_eq!(seen.iter().filter(|status| **status == 404).count(), theirs_of(&kw).await);
        assert_eq!(owner.get(&workspace_path("/audit/log_none")).await.status, 404);
        assert_eq!(owner.post(&workspace_path("/audit/log_none/undo"), &[]).await.status, 404);
    }
}

/// How many entries belong to other workspaces.
async fn theirs_of(kw: &Keyward) -> usize {
    let workspaces = kw.list_texts("audit", "workspace_id").await;
    let theirs = workspaces.iter().filter(|id| id.as_str() != "ws_default").count();
    assert!(theirs > 0);
    theirs
}

#[tokio::test]
async fn every_replica_knows_what_has_come_back() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    let api = kw.create_api().await;
    let key = kw.create_key_in(&api, json!({})).await;
    other.verify(&key.key).await.assert_code("VALID");
    kw.v2("apis.deleteApi", json!({ "apiId": api })).await.data();
    let until = async |wanted: &str| {
        for _ in 0..200 {
            let reply = other.verify(&key.key).await;
            if reply.data()["code"] == wanted {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("the other replica does not answer {wanted}");
    };
    until("NOT_FOUND").await;

    undo(&mut owner, "api.delete").await;

    until("VALID").await;
}
