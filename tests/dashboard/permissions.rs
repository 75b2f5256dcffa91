//! Permissions and roles, as people make, give and delete them, and which keys hold them.

use serde_json::json;

use super::{
    Browser, ESCAPED_NAME, HOSTILE_NAME, between, count_table_rows, next_page_path, redirect_path,
    workspace_path,
};
use crate::on_both_stacks;
use crate::support::Keyward;

async fn verdict(kw: &Keyward, key: &str, permission: &str) -> String {
    let reply = kw.verify_with(key, json!({ "permissions": permission })).await;
    reply.data()["code"].as_str().unwrap().to_owned()
}

on_both_stacks! {
    async fn a_permission_is_made_and_shown_as_text(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        let bare = redirect_path(&owner.post(&workspace_path("/permissions"), &[("slug", " documents.read ")]).await);
        let fields = [("slug", "documents.write"), ("name", HOSTILE_NAME), ("description", HOSTILE_NAME)];
        let full = redirect_path(&owner.post(&workspace_path("/permissions"), &fields).await);

        let bare = owner.get(&bare).await.text;
        assert!(bare.contains("Permission created"));
        assert_eq!(bare.matches(">documents.read<").count(), 2, "{bare}");
        for path in [full.as_str(), &workspace_path("/permissions"), &workspace_path("/permissions/documents.write")] {
            let page = owner.get(path).await.text;
            assert!(page.contains(ESCAPED_NAME) && !page.contains(HOSTILE_NAME), "{page}");
        }
        assert_eq!(kw.list_audit_events("documents.write").await, ["permission.create"]);
    }

    async fn what_is_wrong_with_a_permission_is_told_and_kept(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let [at_bound, beyond] = [128, 129].map(|length| "s".repeat(length));
        let [name, long_name] = [512, 513].map(|length| "ä".repeat(length));
        let ok = [("slug", at_bound.as_str()), ("name", &name), ("description", &name)];
        redirect_path(&owner.post(&workspace_path("/permissions"), &ok).await);

        for (slug, name, description, field) in [
            (beyond.as_str(), "a", "", "slug"),
            ("", "a", "", "slug"),
            ("two words", "a", "", "slug"),
            ("fine", long_name.as_str(), "", "name"),
            ("fine", "a", long_name.as_str(), "description"),
        ] {
            let fields = [("slug", slug), ("name", name), ("description", description)];
            let page = owner.post(&workspace_path("/permissions"), &fields).await;
            assert_eq!(page.status, 422, "{field}");
            let wrong = format!("aria-describedby=\"{field}-hint {field}-error\" aria-invalid=\"true\"");
            assert_eq!(page.text.matches("aria-invalid").count(), 1, "{}", page.text);
            assert!(page.text.contains(&wrong) && page.text.contains(&format!("value=\"{slug}\"")));
        }
        let taken = owner.post(&workspace_path("/permissions"), &ok).await;
        assert_eq!(taken.status, 422);
        assert!(taken.text.contains("already exists"));
        assert_eq!(kw.count_rows("permissions").await, 1);
    }

    async fn permissions_and_roles_are_searched_and_paged(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for number in 0..26 {
            kw.create_permission(&format!("documents.{number:02}")).await;
            kw.create_role(&format!("Reader {number:02}"), []).await;
        }

        for (path, query, one) in
            [("/permissions", "DOCUMENTS", "documents.13"), ("/roles", "reader", "READER+13")]
        {
            let first = owner.get(&workspace_path(&format!("{path}?q={query}"))).await;
            let second = owner.get(&next_page_path(&first)).await.text;
            let found = owner.get(&workspace_path(&format!("{path}?q={one}"))).await.text;
            let none = owner.get(&workspace_path(&format!("{path}?q={one}+"))).await.text;
            let nothing = owner.get(&workspace_path(&format!("{path}?q=%3Cscript%3Ealert(1)%3C/script%3E"))).await.text;

            assert_eq!([count_table_rows(&first.text), count_table_rows(&second), count_table_rows(&found), count_table_rows(&none)], [25, 1, 1, 1]);
            assert!(!second.contains("rel=\"next\"") && second.contains("First page"));
            assert!(nothing.contains("No results") && !nothing.contains(HOSTILE_NAME));
        }
    }

    async fn a_permission_tells_which_roles_have_it(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let id = kw.create_permission("documents.read").await;
        kw.create_role("of something else", ["documents.write"]).await;
        for number in 0..26 {
            kw.create_role(&format!("role {number:02} <b>"), ["documents.read"]).await;
        }
        kw.create_key(json!({ "permissions": ["documents.read"] })).await;

        let first = owner.get(&workspace_path(&format!("/permissions/{id}"))).await;
        let second = owner.get(&next_page_path(&first)).await.text;

        assert!(first.text.contains("<dt>Roles</dt><dd>26</dd>"), "{}", first.text);
        assert!(first.text.contains("direct assignment</dt><dd>1</dd>"));
        assert!(!first.text.contains("<b>") && !first.text.contains("of something else"));
        assert_eq!((count_table_rows(&first.text), count_table_rows(&second)), (25, 1));
    }

    async fn deleting_a_permission_asks_and_then_takes_it_from_keys_and_roles(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let role = kw.create_role("reader", ["documents.read"]).await;
        let direct = kw.create_key(json!({ "permissions": ["documents.read"] })).await;
        let through = kw.create_key(json!({ "roles": ["reader"] })).await;
        let id = kw.list_texts("permissions", "id").await[0].clone();
        let path = workspace_path(&format!("/permissions/{id}/delete"));

        let asked = owner.get(&path).await.text;
        assert!(asked.contains("1 key with a direct assignment and 1 role lose it"), "{asked}");
        assert_eq!(verdict(&kw, &direct.key, "documents.read").await, "VALID");
        redirect_path(&owner.post(&path, &[]).await);

        for key in [&direct.key, &through.key] {
            assert_eq!(verdict(&kw, key, "documents.read").await, "INSUFFICIENT_PERMISSIONS");
        }
        assert_eq!(owner.get(&path).await.status, 404);
        assert!(owner.get(&workspace_path(&format!("/roles/{role}"))).await.text.contains("No permissions."));
        assert!(kw.list_audit_events(&id).await.contains(&"permission.delete".to_owned()));
    }

    async fn form_of_a_key_creates_missing_permissions_and_says_so(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;

        let form = owner.get(&workspace_path(&format!("/keys/new?api={api}"))).await.text;
        let fields = [("api", api.as_str()), ("permissions", "documents.read")];
        let created = owner.post(&workspace_path("/keys"), &fields).await;

        let hint = between(&form, "id=\"permissions-hint\">", "<");
        assert_eq!(hint, "Slugs, one per line, such as documents.read. Permissions that do not exist are created.");
        assert_eq!((created.status.as_u16(), kw.count_rows("permissions").await), (200, 1), "{}", created.text);
    }

    async fn a_role_has_what_was_chosen_and_written_and_its_keys_may_do_it_at_once(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_permission("documents.read").await;
        let offered = owner.get(&workspace_path("/roles/new")).await.text;
        assert!(offered.contains("value=\"documents.read\">"), "{offered}");

        let fields = [("name", HOSTILE_NAME), ("permission", "documents.read"), ("more", "a.new\r\nb.new")];
        let path = redirect_path(&owner.post(&workspace_path("/roles"), &fields).await);
        let page = owner.get(&path).await.text;
        assert!(page.contains(ESCAPED_NAME) && !page.contains(HOSTILE_NAME), "{page}");
        for slug in ["documents.read", "a.new", "b.new"] {
            assert!(page.contains(&format!("{slug}</code>")), "{page}");
        }
        let key = kw.create_key(json!({ "roles": [HOSTILE_NAME] })).await;
        assert_eq!(verdict(&kw, &key.key, "a.new AND b.new").await, "VALID");

        let path = path.split_once('?').unwrap().0;
        let form = owner.get(&format!("{path}/permissions")).await.text;
        assert_eq!(form.matches("checkbox").count(), 3, "{form}");
        assert_eq!(form.matches(" checked>").count(), 3, "{form}");
        let was = ("was", between(&form, "name=\"was\" value=\"", "\""));
        redirect_path(&owner.post(&format!("{path}/permissions"), &[was, ("permission", "a.new")]).await);

        assert_eq!(verdict(&kw, &key.key, "a.new").await, "VALID");
        assert_eq!(verdict(&kw, &key.key, "b.new").await, "INSUFFICIENT_PERMISSIONS");
        assert!(owner.get(path).await.text.contains("<dt>Keys</dt><dd>1</dd>"));
        redirect_path(&owner.post(&format!("{path}/permissions"), &[("was", "a.new")]).await);
        assert_eq!(verdict(&kw, &key.key, "a.new").await, "INSUFFICIENT_PERMISSIONS");
    }

    async fn a_role_keeps_what_others_changed_since_the_form_was_opened(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let role = kw.create_role("reader", ["a.one", "b.two"]).await;
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;
        let path = workspace_path(&format!("/roles/{role}/permissions"));
        let form = owner.get(&path).await.text;
        let was = ("was", between(&form, "name=\"was\" value=\"", "\""));
        let others = json!({ "roleId": role, "permissions": ["a.one", "c.three"] });
        kw.v2("permissions.setRolePermissions", others).await.data();

        let fields = [was, ("permission", "a.one"), ("permission", "b.two"), ("more", "d.four")];
        redirect_path(&owner.post(&path, &fields).await);

        assert_eq!(verdict(&kw, &key.key, "a.one AND c.three AND d.four").await, "VALID");
        assert_eq!(verdict(&kw, &key.key, "b.two").await, "INSUFFICIENT_PERMISSIONS");
    }

    async fn what_is_wrong_with_a_role_is_told_and_the_choice_is_kept(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_permission("documents.read").await;
        let [name, long_name] = [128, 129].map(|length| "n".repeat(length));
        let [most, too_many] = [1000, 1001].map(|count| {
            (0..count).map(|number| format!("s{number}")).collect::<Vec<_>>().join("\n")
        });
        let chosen = ("permission", "documents.read");

        for fields in [
            [("name", long_name.as_str()), chosen, ("more", "")],
            [("name", ""), chosen, ("more", "")],
            [("name", "a"), chosen, ("more", "no/slash")],
            [("name", "a"), ("permission", ""), ("more", too_many.as_str())],
        ] {
            let page = owner.post(&workspace_path("/roles"), &fields).await;
            assert_eq!(page.status, 422, "{}", page.text);
            assert!(page.text.contains("aria-invalid"));
            assert_eq!(page.text.contains("value=\"documents.read\" checked"), fields[1] == chosen);
        }
        assert_eq!(kw.count_rows("roles").await, 0);

        let path = redirect_path(&owner.post(&workspace_path("/roles"), &[("name", &name), ("more", &most)]).await);
        let path = path.split_once('?').unwrap().0;
        assert!(owner.get(path).await.text.contains("<dt>Permissions</dt><dd>1,000</dd>"));
        let page = owner.post(&format!("{path}/permissions"), &[("more", &too_many)]).await;
        assert_eq!(page.status, 422);
        let taken = owner.post(&workspace_path("/roles"), &[("name", &name)]).await;
        assert!(taken.status == 422 && taken.text.contains("already exists"));
    }

    async fn a_role_is_called_and_described_anew_and_its_keys_keep_it(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let role = kw.create_role("writer", ["docs.write"]).await;
        kw.create_role("taken", ["docs.read"]).await;
        let key = kw.create_key(json!({ "roles": ["writer"] })).await;
        let roles = async || kw.verify(&key.key).await.data()["roles"].clone();
        assert_eq!(roles().await, json!(["writer"]));
        let path = workspace_path(&format!("/roles/{role}/settings"));
        assert!(owner.get(&path).await.text.contains("value=\"writer\""));
        let [at_bound, beyond] = [128, 129].map(|length| "ä".repeat(length));
        let [most, too_much] = [512, 513].map(|length| "d".repeat(length));
        let was = [("was-name", "writer"), ("was-description", "")];
        let fields = |name, description| {
            [&[("name", name), ("description", description)][..], &was].concat()
        };

        for (name, description, told) in [
            ("", "", "Name has 0 characters: it must have 1 to 128"),
            (&*beyond, "", "Name has 129 characters"),
            ("fine", &*too_much, "Description has 513 characters: it must have 0 to 512"),
            ("taken", "", "taken already exists"),
        ] {
            let refused = owner.post(&path, &fields(name, description)).await;
            assert!(refused.status == 422 && refused.text.contains(told), "{}", refused.text);
            assert!(refused.text.contains(&format!("value=\"{name}\"")), "{}", refused.text);
        }
        assert_eq!(roles().await, json!(["writer"]));
        redirect_path(&owner.post(&path, &fields(&at_bound, &most)).await);
        assert_eq!(roles().await, json!([at_bound]));
        redirect_path(&owner.post(&path, &fields(HOSTILE_NAME, "")).await);

        assert_eq!(roles().await, json!([HOSTILE_NAME]), "at once");
        let page = owner.get(&workspace_path(&format!("/roles/{role}"))).await.text;
        assert!(page.contains(ESCAPED_NAME) && page.contains(&most), "left alone: {page}");
        assert!(owner.get(&workspace_path("/roles?q=alert")).await.text.contains(&role), "found by its name");
        let update = "role.update".to_owned();
        assert_eq!(kw.list_audit_events(&role).await.iter().filter(|e| **e == update).count(), 2);
    }

    async fn a_role_that_is_deleted_is_taken_from_its_keys(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let role = kw.create_role("reader", ["documents.read"]).await;
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;
        let path = workspace_path(&format!("/roles/{role}/delete"));

        let asked = owner.get(&path).await.text;
        assert!(asked.contains("The role is removed from 1 key") && asked.contains("its 1 permission,"), "{asked}");
        redirect_path(&owner.post(&path, &[]).await);

        assert_eq!(verdict(&kw, &key.key, "documents.read").await, "INSUFFICIENT_PERMISSIONS");
        assert_eq!(owner.get(&path).await.status, 404);
    }

    async fn which_keys_can_do_something_is_what_verification_decides(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        for slug in ["documents.*", "Documents.read"] {
            kw.create_permission(slug).await;
        }
        kw.create_role("reader <b>", ["documents.read"]).await;
        kw.create_role("writer", ["documents.read", "documents.write"]).await;
        let holders = [
            (kw.create_key_in(&api, json!({ "permissions": ["documents.read"] })).await, "Direct<"),
            (kw.create_key_in(&api, json!({ "roles": ["writer"] })).await, "Role <a"),
            (
                kw.create_key_in(&api, json!({ "roles": ["reader <b>"], "permissions": ["documents.read"] })).await,
                "Direct, Role <a",
            ),
            (kw.create_key_in(&api, json!({ "roles": ["reader <b>", "writer"], "name": HOSTILE_NAME })).await, "</a>, <a"),
        ];
        let others = [
            kw.create_key_in(&api, json!({ "permissions": ["documents.*"] })).await,
            kw.create_key_in(&api, json!({ "permissions": ["Documents.read", "documents.write"] })).await,
            kw.create_key_in(&api, json!({})).await,
        ];

        let page = owner.get(&workspace_path("/which-keys?slug=documents.read")).await.text;

        let of_key = |id: &str| page.split("<tr>").find(|row| row.contains(id));
        for (key, how) in &holders {
            assert_eq!(verdict(&kw, &key.key, "documents.read").await, "VALID");
            assert!(of_key(&key.id).is_some_and(|row| row.contains(how)), "{how} {page}");
        }
        for key in &others {
            assert_eq!(verdict(&kw, &key.key, "documents.read").await, "INSUFFICIENT_PERMISSIONS");
            assert_eq!(of_key(&key.id), None);
        }
        assert!(page.contains("reader &#60;b&#62;") && page.contains(ESCAPED_NAME) && !page.contains(HOSTILE_NAME));
        let star = owner.get(&workspace_path("/which-keys?slug=documents.*")).await.text;
        assert!(star.contains(&others[0].id) && !star.contains(&holders[0].0.id));
        let none = owner.get(&workspace_path("/which-keys?slug=documents.none")).await.text;
        assert!(none.contains("Permission not found"));
    }

    async fn the_holders_of_a_permission_are_paged_each_once(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        kw.create_role("one", ["documents.read"]).await;
        kw.create_role("two", ["documents.read"]).await;
        let ways = [
            json!({ "permissions": ["documents.read"] }),
            json!({ "roles": ["one"] }),
            json!({ "roles": ["one", "two"], "permissions": ["documents.read"] }),
        ];
        let mut ids = Vec::new();
        for number in 0..73 {
            ids.push(kw.create_key_in(&api, ways[number % 3].clone()).await.id);
        }
        ids.sort();
        for gone in ids.drain(10..32) {
            kw.v2("keys.deleteKey", json!({ "keyId": gone })).await.data();
        }

        let mut seen = Vec::new();
        let mut path = workspace_path("/which-keys?slug=documents.read");
        loop {
            let page = owner.get(&path).await;
            let rows = page.text.split("/dashboard/ws_default/keys/").skip(1);
            seen.extend(rows.map(|row| row.split_once('"').unwrap().0.to_owned()));
            if !page.text.contains("rel=\"next\"") {
                break;
            }
            path = next_page_path(&page);
        }

        assert_eq!(seen, ids);
    }

    async fn rights_of_another_workspace_do_not_exist(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let stranger = kw.create_other_workspace().await;
        let permission = json!({ "name": "theirs", "slug": "theirs" });
        let made = kw.v2_as(&stranger, "permissions.createPermission", permission).await;
        let permission = made.text_of("permissionId");
        let role = json!({ "name": "theirs", "permissions": ["theirs"] });
        let role = kw.v2_as(&stranger, "permissions.createRole", role).await.text_of("roleId");

        for path in ["permissions/theirs", &format!("permissions/{permission}"), &format!("roles/{role}")] {
            for rest in ["", "/delete", "/permissions"] {
                let page = owner.get(&workspace_path(&format!("/{path}{rest}"))).await;
                assert_eq!(page.status, 404, "{path}{rest}");
            }
            assert_eq!(owner.post(&workspace_path(&format!("/{path}/delete")), &[]).await.status, 404);
        }
        let set = owner.post(&workspace_path(&format!("/roles/{role}/permissions")), &[]).await;
        assert_eq!(set.status, 404);
        assert!(owner.get(&workspace_path("/which-keys?slug=theirs")).await.text.contains("Permission not found"));
        for list in ["/permissions", "/roles"] {
            assert!(!owner.get(&workspace_path(list)).await.text.contains("theirs"));
        }
        assert_eq!((kw.count_rows("permissions").await, kw.count_rows("roles").await), (1, 1));
    }
}
