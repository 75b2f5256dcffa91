//! `keys.addRoles`, `keys.setRoles`, `keys.removeRoles`, the same of permissions, and both lists of `keys.updateKey`: what
//! holds for roles holds for permissions.

use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Reply};

/// Roles or permissions, which are named by letters here: the role `role a` gives the permission `docs.a`.
#[derive(Clone, Copy)]
struct Kind {
    list: &'static str,
    operations: [&'static str; 4],
    /// The singular, as in names of events and actions.
    singular: &'static str,
    prefix: &'static str,
    id: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        list: "permissions",
        operations: [
            "keys.addPermissions",
            "keys.setPermissions",
            "keys.removePermissions",
            "keys.updateKey",
        ],
        singular: "permission",
        prefix: "docs.",
        id: "perm_",
    },
    Kind {
        list: "roles",
        operations: ["keys.addRoles", "keys.setRoles", "keys.removeRoles", "keys.updateKey"],
        singular: "role",
        prefix: "role ",
        id: "role_",
    },
];

const ADD: usize = 0;
const SET: usize = 1;
const REMOVE: usize = 2;
/// Replaces as [`SET`] does, with the other fields of the key.
const UPDATE: usize = 3;

/// A server with roles or permissions `a` to `e`, their ids, and a key that has `c` and `d`.
struct Fixture {
    kw: Keyward,
    kind: Kind,
    ids: Vec<String>,
    key: IssuedKey,
}

impl Fixture {
    async fn all(kw: &Keyward) -> Vec<Self> {
        let mut all = Vec::new();
        for kind in KINDS {
            let kw = Keyward::start(kw.stack).await;
            let mut ids = Vec::new();
            for letter in ["a", "b", "c", "d", "e"] {
                let (name, slug) = (kind.name(letter), format!("docs.{letter}"));
                ids.push(match kind.list {
                    "roles" => kw.create_role(&name, [slug.as_str()]).await,
                    _ => kw.create_permission(&name).await,
                });
            }
            let key = kw.create_key(json!({ kind.list: kind.names("cd") })).await;
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
            all.push(Self { kw, kind, ids, key });
        }
        all
    }

    async fn call(&self, operation: usize, items: Value) -> Reply {
        self.call_as(&self.kw.root_key, operation, items).await
    }

    async fn call_as(&self, root_key: &str, operation: usize, items: Value) -> Reply {
        let mut request = json!({ "keyId": self.key.id, self.kind.list: items });
        if operation == UPDATE {
            request["name"] = json!("renamed");
        }
        self.kw.v1_as(root_key, self.kind.operations[operation], request).await
    }

    /// Creates a root key that may change keys and take only these actions, such as `add_{}_to_key`.
    async fn root_key(&self, actions: &[&str]) -> String {
        let permissions = actions.iter().map(|action| format!("rbac.*.{}", self.kind.word(action)));
        let permissions = permissions.chain(["api.*.update_key".to_owned()]).collect();
        self.kw.create_root_key_with(permissions).await
    }

    /// Fails unless the key has exactly these, by their letters, for both versions and for verification.
    async fn assert_has(&self, letters: &str) {
        let names = self.kind.names(letters);
        assert_eq!(self.kw.get_key_v1(&self.key.id).await[self.kind.list], names);
        let v2 = self.kw.get_key(&self.key.id).await[self.kind.list].clone();
        assert_eq!(if v2.is_null() { json!([]) } else { v2 }, names);
        for letter in ["a", "b", "c", "d", "e"] {
            let slug = format!("docs.{letter}");
            let code = if letters.contains(letter) { "VALID" } else { "INSUFFICIENT_PERMISSIONS" };
            let request = json!({ "authorization": { "permissions": slug } });
            self.kw.verify_v1(&self.key.key, request).await.assert_v1_code(code);
            let request = json!({ "permissions": slug });
            self.kw.verify_with(&self.key.key, request).await.assert_code(code);
        }
    }

    async fn events(&self, letter: &str) -> Vec<String> {
        self.kw.list_audit_events(&self.kind.name(letter)).await
    }

    async fn rows(&self) -> (i64, usize) {
        let of_key = self.kw.list_audit_events(&self.key.id).await.len();
        (
            self.kw
                .count_rows(if self.kind.list == "roles" { "roles" } else { "permissions" })
                .await,
            of_key,
        )
    }
}

impl Kind {
    fn name(self, letter: &str) -> String {
        format!("{}{letter}", self.prefix)
    }

    /// The names of these letters.
    fn names(self, letters: &str) -> Value {
        letters.chars().map(|letter| self.name(&letter.to_string())).collect()
    }

    /// Replaces `{}` by `role` or `permission`.
    fn word(self, text: &str) -> String {
        text.replace("{}", self.singular)
    }

    fn item(self, letter: &str) -> Value {
        json!({ "name": self.name(letter) })
    }

    fn create(self, letter: &str) -> Value {
        json!({ "name": self.name(letter), "create": true })
    }
}

on_both_stacks! {
    async fn added_ones_count_at_once_and_the_reply_tells_those_asked_for(kw) {
        for f in Fixture::all(&kw).await {
            let third = if f.kind.list == "permissions" { json!({ "slug": "docs.e" }) } else { f.kind.item("e") };

            let reply = f.call(ADD, json!([{ "id": f.ids[0] }, f.kind.item("b"), third])).await;

            let told = reply.v1_body().as_array().unwrap();
            assert_eq!(told.len(), 3, "{reply}");
            for (at, letter) in [(0, "a"), (1, "b"), (4, "e")] {
                assert!(told.contains(&json!({ "id": f.ids[at], "name": f.kind.name(letter) })), "{reply}");
            }
            f.assert_has("abcde").await;
            for event in ["authorization.connect_{}_and_key", "{}.create"] {
                assert!(f.events("b").await.contains(&f.kind.word(event)), "{reply}");
            }
        }
    }

    async fn set_ones_replace_those_that_the_key_has_and_all_are_told(kw) {
        for f in Fixture::all(&kw).await {
            let first = if f.kind.list == "permissions" { json!({ "slug": "docs.e" }) } else { f.kind.item("e") };

            let reply = f.call(SET, json!([first, { "id": f.ids[3] }])).await;

            let told = [(3, "d"), (4, "e")].map(|(at, letter)| json!({ "id": f.ids[at], "name": f.kind.name(letter) }));
            assert_eq!(*reply.v1_body(), json!(told));
            f.assert_has("de").await;
            assert_eq!(f.call(UPDATE, json!([{ "id": f.ids[0] }, f.kind.item("d")])).await.text, "{}");
            f.assert_has("ad").await;
            assert_eq!(*f.call(UPDATE, json!([])).await.v1_body(), json!({}));
            f.assert_has("").await;
            assert_eq!(f.kw.get_key_v1(&f.key.id).await["name"], "renamed");
        }
    }

    async fn removed_ones_are_gone_at_once_and_of_an_id_and_a_name_the_id_counts(kw) {
        for f in Fixture::all(&kw).await {
            f.call(ADD, json!([f.kind.item("a"), f.kind.item("b"), f.kind.item("e")])).await.v1_body();
            let by_slug = if f.kind.list == "permissions" { json!({ "slug": "docs.c" }) } else { f.kind.item("c") };
            let before = f.rows().await.0;

            assert_eq!(f.call(REMOVE, json!([{ "id": f.ids[0] }, f.kind.item("b"), by_slug])).await.text, "{}");
            f.assert_has("de").await;
            f.call(REMOVE, json!([{ "id": f.ids[3], "name": f.kind.name("e") }])).await.v1_body();

            f.assert_has("e").await;
            assert_eq!(f.rows().await.0, before);
        }
    }

    async fn only_what_changes_is_recorded(kw) {
        for f in Fixture::all(&kw).await {
            let disconnect = f.kind.word("authorization.disconnect_{}_and_key");
            // The operation, its items, what the reply tells, and how many entries it leaves; again it leaves none.
            for (operation, items, told, entries) in [
                (ADD, json!([f.kind.item("c"), { "id": f.ids[2] }, f.kind.item("c")]), json!([{ "id": f.ids[2], "name": f.kind.name("c") }]), 0),
                (SET, json!([f.kind.item("d"), f.kind.item("e")]), Value::Null, 2),
                (REMOVE, json!([f.kind.item("e")]), json!({}), 1),
            ] {
                for entries in [entries, 0] {
                    let before = f.rows().await.1;
                    let reply = f.call(operation, items.clone()).await;
                    assert!(told.is_null() || *reply.v1_body() == told, "{reply}");
                    assert_eq!(f.rows().await.1, before + entries, "{reply}");
                }
            }
            assert!(f.events("c").await.contains(&disconnect) && f.events("e").await.contains(&disconnect));
            assert!(!f.events("d").await.contains(&disconnect));
        }
    }

    async fn those_that_do_not_exist_are_named_and_nothing_changes(kw) {
        for f in Fixture::all(&kw).await {
            let before = f.rows().await;
            let (upper, ghost) = (f.kind.name("a").to_uppercase(), format!("{}ghost", f.kind.id));
            let y = if f.kind.list == "permissions" { "slug" } else { "name" };
            let several = json!([f.kind.item("a"), f.kind.item("x"), { y: f.kind.name("y"), "create": false }, { "name": upper }, { "id": ghost }]);
            for (operation, items, named) in [
                (ADD, several, vec![&*f.kind.name("x"), &f.kind.name("y"), &upper, &ghost]),
                (ADD, json!([{ "id": ghost, "create": true }]), vec![&ghost]),
                (SET, json!([f.kind.item("x")]), vec![&f.kind.name("x")]),
                (SET, json!([{ "id": ghost }]), vec![&ghost]),
                (UPDATE, json!([f.kind.item("x")]), vec![&f.kind.name("x")]),
                (UPDATE, json!([{ "id": ghost, "create": true }]), vec![&ghost]),
            ] {
                f.call(operation, items).await.assert_v1_error_about(404, "NOT_FOUND", &named);
            }
            // To remove them, they need not exist, and none is created.
            let items = json!([f.kind.item("x"), { "id": ghost }, f.kind.item("a"), f.kind.create("y")]);
            assert_eq!(*f.call(REMOVE, items).await.v1_body(), json!({}));
            assert_eq!(f.rows().await, before);
            f.assert_has("cd").await;
            f.call(REMOVE, json!([f.kind.item("x"), f.kind.item("c")])).await.v1_body();
            f.assert_has("d").await;
        }
    }

    async fn a_missing_one_is_created_on_request_by_a_root_key_that_may(kw) {
        for f in Fixture::all(&kw).await {
            let may = f.root_key(&["add_{}_to_key", "create_{}"]).await;
            let request = if f.kind.list == "permissions" { json!({ "slug": "docs.y", "create": true }) } else { f.kind.create("y") };

            let added = f.call_as(&may, ADD, json!([f.kind.create("x")])).await;
            let set = f.call(SET, json!([f.kind.item("x"), request])).await;
            f.call(UPDATE, json!([f.kind.item("x"), f.kind.item("y"), f.kind.create("z")])).await.v1_body();

            assert_eq!((&added.v1_body()[0]["name"], &set.v1_body()[1]["name"]), (&json!(f.kind.name("x")), &json!(f.kind.name("y"))));
            let id = added.body[0]["id"].as_str().unwrap();
            assert!(id.starts_with(f.kind.id), "{id}");
            let created = get(&f, id).await;
            assert_eq!(created["name"], f.kind.name("x"));
            assert!(f.kind.list == "roles" || created["slug"] == "docs.x", "{created}");
            assert_eq!(f.kw.get_key_v1(&f.key.id).await[f.kind.list], f.kind.names("xyz"));
            for letter in ["x", "y", "z"] {
                assert_eq!(f.events(letter).await, ["authorization.connect_{}_and_key", "{}.create"].map(|event| f.kind.word(event)));
            }
        }
    }

    async fn each_change_needs_its_right_and_no_other(kw) {
        for f in Fixture::all(&kw).await {
            let (add, take, make) = ("add_{}_to_key", "remove_{}_from_key", "create_{}");
            let before = f.rows().await;
            let (a, c, d, new) = (f.kind.item("a"), f.kind.item("c"), f.kind.item("d"), f.kind.create("x"));
            for (operation, held, items, missing) in [
                (ADD, vec![add], json!([a, new]), make),
                (SET, vec![take, make], json!([c, d, a]), add),
                (SET, vec![add, make], json!([a]), take),
                (SET, vec![add, take], json!([c, new]), make),
                (UPDATE, vec![], json!([c, d, a]), add),
                (UPDATE, vec![], json!([]), take),
                (UPDATE, vec![add], json!([a]), take),
                (UPDATE, vec![add], json!([c, d, new]), make),
            ] {
                let reply = f.call_as(&f.root_key(&held).await, operation, items).await;
                reply.assert_v1_error_about(403, "INSUFFICIENT_PERMISSIONS", &[&f.kind.word(missing)]);
            }
            assert_eq!(f.rows().await, before);
            f.assert_has("cd").await;

            for (operation, held, items, has) in [
                (ADD, add, json!([f.kind.create("a")]), "acd"),
                (SET, add, json!([a, c, d, f.kind.item("b")]), "abcd"),
                // What the key has needs no further right.
                (UPDATE, make, json!([a, c, d, f.kind.item("b")]), "abcd"),
                (SET, take, json!([a, c]), "ac"),
                (REMOVE, take, json!([c]), "a"),
            ] {
                f.call_as(&f.root_key(&[held]).await, operation, items).await.v1_body();
                f.assert_has(has).await;
            }
        }
    }

    async fn an_item_that_names_nothing_is_refused_and_changes_nothing(kw) {
        for f in Fixture::all(&kw).await {
            for (operation, items, at) in [
                (ADD, json!([{}]), 0),
                (ADD, json!([f.kind.item("a"), { "create": true }]), 1),
                (SET, json!([{ "create": true }]), 0),
                (REMOVE, json!([f.kind.item("c"), {}]), 1),
                (REMOVE, json!([{}]), 0),
                (SET, json!([{}]), 0),
                (UPDATE, json!([f.kind.item("c"), {}]), 1),
                (UPDATE, json!([{ "create": true }]), 0),
                (UPDATE, json!([{}]), 0),
            ] {
                f.call(operation, items).await.assert_v1_fault(&format!("{}.{at}: ", f.kind.list), &[]);
            }
            f.assert_has("cd").await;
        }
    }

    async fn one_of_another_workspace_does_not_exist(kw) {
        for f in Fixture::all(&kw).await {
            let stranger = f.kw.create_other_workspace().await;
            let created = match f.kind.list {
                "roles" => f.kw.v2_as(&stranger, "permissions.createRole", json!({ "name": "role x" })).await,
                _ => f.kw.v2_as(&stranger, "permissions.createPermission", json!({ "name": "x", "slug": "docs.x" })).await,
            };
            let id = created.text_of(&f.kind.word("{}Id"));
            for item in [json!({ "id": id, "create": true }), f.kind.item("x")] {
                f.call(ADD, json!([item])).await.assert_v1_error(404, "NOT_FOUND");
            }
            f.assert_has("cd").await;
        }
    }

    async fn the_name_of_a_permission_is_its_slug(kw) {
        kw.v2("permissions.createPermission", json!({ "name": "Read documents", "slug": "docs.read" })).await.data();
        let key = kw.create_key(json!({})).await;
        let add = async |name: &str| {
            kw.v1("keys.addPermissions", json!({ "keyId": key.id, "permissions": [{ "name": name }] })).await
        };
        add("Read documents").await.assert_v1_error(404, "NOT_FOUND");
        assert_eq!(add("docs.read").await.v1_body()[0]["name"], "docs.read");
    }

    async fn permissions_through_a_role_and_those_of_the_key_itself_are_apart(kw) {
        kw.create_role("editor", ["docs.read"]).await;
        kw.create_role("reader", []).await;
        let both = kw.create_key(json!({ "roles": ["editor"], "permissions": ["docs.read"] })).await;
        let own = kw.create_key(json!({ "permissions": ["docs.read"] })).await;
        let remove = json!({ "keyId": both.id, "permissions": [{ "name": "docs.read" }] });
        kw.v1("keys.removePermissions", remove).await.v1_body();
        kw.v1("keys.setRoles", json!({ "keyId": own.id, "roles": [{ "name": "reader" }] })).await.v1_body();
        for key in [both, own] {
            kw.verify_v1(&key.key, json!({ "authorization": { "permissions": "docs.read" } })).await.assert_v1_code("VALID");
        }
    }
}

/// Returns the role or permission as version 2 does.
async fn get(f: &Fixture, id: &str) -> Value {
    let operation =
        if f.kind.list == "roles" { "permissions.getRole" } else { "permissions.getPermission" };
    f.kw.v2(operation, json!({ f.kind.singular: id })).await.data().clone()
}
