use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn create(kw: &Keyward, fields: Value) -> Reply {
    kw.v1("permissions.createPermission", fields).await
}

/// What is told of the permission that was made.
async fn told(kw: &Keyward, made: &Reply) -> Value {
    let query = format!("permissionId={}", made.v1_body()["permissionId"].as_str().unwrap());
    kw.v1_get("permissions.getPermission", &query).await.v1_body().clone()
}

on_both_stacks! {
    async fn the_slug_is_the_name_unless_it_is_given(kw) {
        let named = create(&kw, json!({ "name": "docs.read" })).await;
        let slugged = create(&kw, json!({ "name": "docs.read", "slug": "docs:read-all_1" })).await;
        assert_eq!(told(&kw, &named).await["slug"], "docs.read");
        assert_eq!(told(&kw, &slugged).await["name"], "docs.read");
        assert_eq!(told(&kw, &slugged).await["slug"], "docs:read-all_1");
    }

    async fn keys_name_it_by_its_slug(kw) {
        let api = kw.create_api().await;
        create(&kw, json!({ "name": "Reading", "slug": "docs.read" })).await.v1_body();

        let key = kw.v1("keys.createKey", json!({ "apiId": api, "permissions": ["docs.read"] })).await;

        let asked = json!({ "authorization": { "permissions": "docs.read" } });
        let verified = kw.verify_v1(key.v1_body()["key"].as_str().unwrap(), asked).await;
        assert_eq!(verified.assert_v1_code("VALID")["permissions"], json!(["docs.read"]));
        assert_eq!(kw.count_rows("permissions").await, 1);
    }

    async fn only_its_id_names_it(kw) {
        let id = create(&kw, json!({ "name": "docs.read" })).await.v1_body()["permissionId"].clone();
        let delete = async |id: &Value| kw.v1("permissions.deletePermission", json!({ "permissionId": id })).await;

        let got = kw.v1_get("permissions.getPermission", "permissionId=docs.read").await;
        let deleted = delete(&json!("docs.read")).await;

        for reply in [got, deleted] {
            reply.assert_v1_error_about(404, "NOT_FOUND", &["docs.read"]);
        }
        assert_eq!(kw.count_rows("permissions").await, 1);
        delete(&id).await.v1_body();
        assert_eq!(kw.count_rows("permissions").await, 0);
    }

    async fn names_have_letters_digits_and_four_marks(kw) {
        for name in ["docs.*", "docs read", "döcs", "docs/read"] {
            let as_name = create(&kw, json!({ "name": name })).await;
            let as_slug = create(&kw, json!({ "name": "docs.read", "slug": name })).await;

            assert!(as_name.assert_v1_error(400, "BAD_REQUEST").starts_with("name: "), "{name}");
            assert!(as_slug.assert_v1_error(400, "BAD_REQUEST").starts_with("slug: "), "{name}");
        }
        create(&kw, json!({ "name": "aZ09_.:-" })).await.v1_body();
        assert_eq!(kw.count_rows("permissions").await, 1);
    }

    async fn a_description_is_empty_or_three_characters_or_more(kw) {
        let create = async |name: &str, description: &str| {
            create(&kw, json!({ "name": name, "description": description })).await
        };

        let empty = create("docs.0", "").await;
        assert!(create("docs.2", "ab").await.assert_v1_error(400, "BAD_REQUEST").starts_with("description: "));
        let some = create("docs.3", "«ü»").await;

        assert_eq!(told(&kw, &empty).await.get("description"), None);
        assert_eq!(told(&kw, &some).await["description"], "«ü»");
    }
}
