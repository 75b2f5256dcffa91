use serde_json::{Value, json};

use crate::on_both_stacks;

on_both_stacks! {
    async fn name_slug_and_description_are_kept_to_the_letter(kw) {
        let (name, text) = ("Lire « tout » 📖", "Para 'leer' \"todo\"\n\\ %s $1");
        for (slug, description, told) in [("Az09_:-.*", text, json!(text)), ("documents.read", "", Value::Null)] {
            let request = json!({ "name": name, "slug": slug, "description": description });
            let id = kw.v2("permissions.createPermission", request).await.text_of("permissionId");
            let mut expected = json!({ "id": id, "name": name, "slug": slug });
            if !told.is_null() {
                expected["description"] = told;
            }
            assert_eq!(*kw.v2("permissions.getPermission", json!({ "permission": slug })).await.data(), expected);
        }
    }

    async fn a_new_permission_can_be_given_to_a_key(kw) {
        kw.create_permission("documents.read").await;
        let key = kw.create_key(json!({ "permissions": ["documents.read"] })).await;
        kw.verify_with(&key.key, json!({ "permissions": "documents.read" })).await.assert_code("VALID");
    }
}
